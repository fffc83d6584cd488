"""The check that everything is timed on: an MLP, column then row, under tpcheck and by hand.

`example` is one case as one would test it without tpcheck: every rank draws, runs the reference
twice, and compares with `torch.allclose`.

Letters: R = degree, B batch, S sequence, H hidden, I intermediate.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from tpcheck import specs
from tpcheck.case import Case, Dim
from tpcheck.check import Check
from tpcheck.specs import reference
from tpcheck.tensors.draw import torch_dtype

SHARDED = {
    "up.weight": 0,
    "up.bias": 0,
    "down.weight": 1,
}  # parameter → sharded dim


class _Enter(torch.autograd.Function):
    """x `Replicate` → x `Replicate`; backward all-reduces the gradient (Megatron's f)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _Leave(torch.autograd.Function):
    """y `Partial` → y `Replicate`; backward passes the gradient on (Megatron's g)."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, group: Any) -> Tensor:
        y = y.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class MLP(nn.Module):
    """x [B, S, H] `Replicate` → y [B, S, H] `Replicate`; two all-reduces per pass, one each way."""

    def __init__(self, hidden: int, intermediate: int, group: Any) -> None:
        super().__init__()
        self.group = group
        self.up = nn.Linear(hidden, intermediate // group.size())  # [I / R, H]
        self.down = nn.Linear(intermediate // group.size(), hidden)  # [H, I / R]

    def forward(self, x: Tensor) -> Tensor:
        h = F.gelu(self.up(_Enter.apply(x, self.group)), approximate="tanh")
        # the bias joins after the sum: before it, every rank would add one
        y: Tensor = _Leave.apply(F.linear(h, self.down.weight), self.group)
        return y + self.down.bias


def _build(case: Case, mesh: Any) -> MLP:
    return MLP(case["hidden"], case["intermediate"], mesh["tp"].get_group())


check = Check(specs.mlp(), candidate=_build, name="bench_mlp")

#: Ranks that are threads draw from one generator.
_drawing = threading.Lock()

_FIXED: dict[str, Dim] = {"activation": "gelu", "norm": "none", "residual": False, "bias": True}


def cases(degree: int, count: int) -> list[Case]:
    """`count` different cases, of the sizes that a search draws, in three dtypes."""
    sizes = itertools.product((1, 2, 3), (1, 4), (8, 12), (16, 24))
    dtypes = itertools.cycle(("float32", "bfloat16", "float64"))
    return [
        Case(
            {"batch": b, "seq": s, "hidden": h, "intermediate": i} | _FIXED,
            dtype=dtype,
            mesh={"tp": degree},
            seed=seed,
        )
        for seed, ((b, s, h, i), dtype) in enumerate(
            itertools.islice(zip(itertools.cycle(sizes), dtypes, strict=False), count)
        )
    ]


def of_size(hidden: int, degree: int, dtype: str, seed: int = 0) -> Case:
    """The case of a cell of the table: 32 tokens of this width, four times as wide inside."""
    dims: dict[str, Dim] = {"batch": 2, "seq": 16, "hidden": hidden, "intermediate": 4 * hidden}
    return Case(dims | _FIXED, dtype=dtype, mesh={"tp": degree}, seed=seed)


def example(case: Case, group: Any) -> None:
    """One case by hand, on one rank; raises `AssertionError` where a tensor is off."""
    dtype, rank, degree = torch_dtype(case), group.rank(), group.size()
    plain, candidate, x, cotangent = drawn(case, group)
    state = {name: p.detach().clone() for name, p in plain.named_parameters()}
    own = _run(plain, x, cotangent)
    expected = _run(plain.double(), x.double(), cotangent.double())
    with torch.no_grad():
        for name, p in candidate.named_parameters():
            p.copy_(_shard(name, state[name], rank, degree))
    for name, actual in _run(candidate, x, cotangent).items():
        wanted = expected[name]
        # in float64 the reference's own run has no error: sums of so many terms round by its root
        terms = math.sqrt(case["intermediate"])
        scale = float(wanted.abs().max()) * torch.finfo(dtype).eps * terms
        limit = 8 * (float((own[name].double() - wanted).abs().max()) + scale)
        wanted = _shard(name, wanted, rank, degree)
        assert torch.allclose(actual.double(), wanted, rtol=0, atol=limit), f"{name}: {case}"


def drawn(case: Case, group: Any) -> tuple[nn.Module, MLP, Tensor, Tensor]:
    """Reference, candidate, x and cotangent [B, S, H], on every rank the same."""
    dtype = torch_dtype(case)
    with _drawing:
        torch.manual_seed(case.seed)
        plain = reference.MLP(case["hidden"], case["intermediate"])
        for p in plain.parameters():
            p.data = torch.randn(p.shape) * p.shape[-1] ** -0.5
        plain = plain.to(dtype)
        x = torch.randn(case["batch"], case["seq"], case["hidden"]).to(dtype)
        cotangent = torch.randn(x.shape).to(dtype)
        candidate = MLP(case["hidden"], case["intermediate"], group).to(dtype)
    return plain, candidate, x, cotangent


def _run(module: nn.Module, x: Tensor, cotangent: Tensor) -> dict[str, Tensor]:
    """Output and gradients, by name."""
    module.zero_grad()
    leaf = x.clone().requires_grad_()
    y = module(leaf)
    y.backward(cotangent)
    grads = {name: _gradient(p) for name, p in module.named_parameters()}
    return {"output": y.detach(), "x": _gradient(leaf), **grads}


def _gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


def _shard(name: str, full: Tensor, rank: int, degree: int) -> Tensor:
    return full.chunk(degree, SHARDED[name])[rank] if name in SHARDED else full


def loop(mesh: Any, work: Sequence[Case]) -> list[float]:
    """The bare loop on one warm rank: seconds of each case. The collectives keep ranks in step."""
    group, seconds = mesh["tp"].get_group(), []
    for case in work:
        start = time.perf_counter()
        example(case, group)
        seconds.append(time.perf_counter() - start)
    return seconds
