"""What a function has returned, outputs and gradients, is left alone by its later calls."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from tpcheck import Argument, Layout, Shard, kernel_check, strategies
from tpcheck.engines.engine import Engine
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict

OPTIONS = Options(examples=24, corpus=None, shrink_cases=4)
BOTH = {"x": Argument("rows", "width"), "y": Argument("rows", "width")}


def product(x: Tensor, y: Tensor) -> Tensor:
    return x * y


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y


def into_buffers(count: int) -> Any:
    """The gradient of x is in memory that is kept, one of so many in turn: where it goes on to
    another backward, that of a later call may be there before."""
    buffers: dict[Any, Tensor] = {}
    calls = itertools.count()

    class IntoBuffers(Product):
        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            key = (x.shape, x.dtype, next(calls) % count)
            kept = buffers.setdefault(key, torch.empty(x.shape).to(x.dtype))
            return kept.copy_(grads[0] * y), grads[0] * x

    return IntoBuffers.apply


class OfArena(Product):
    """Each gradient has a place of its own in memory from which others have theirs."""

    arena: ClassVar[dict[Any, list[Any]]] = {}

    @staticmethod
    def place(x: Tensor) -> Tensor:
        held = OfArena.arena.setdefault(x.dtype, [torch.zeros(0).to(x.dtype), 0])
        if held[1] + x.numel() > held[0].numel():
            held[:] = [torch.zeros(max(10_000, x.numel())).to(x.dtype), 0]
        held[1] += x.numel()
        own: Tensor = held[0][held[1] - x.numel() : held[1]]
        return own.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return OfArena.place(x).copy_(grads[0] * y), grads[0] * x


def rows_of(table: Tensor, ids: Tensor) -> Tensor:
    """The gradient of the table is sparse."""
    return torch.nn.functional.embedding(ids, table, sparse=True)


class FromScratch(Product):
    """Memory that is kept, too, but for what nobody sees after the call."""

    buffers: ClassVar[dict[Any, Tensor]] = {}

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        kept = FromScratch.buffers.setdefault((x.shape, x.dtype), torch.empty(x.shape).to(x.dtype))
        return kept.copy_(grads[0] * y).clone(), grads[0] * x


class Sum(torch.autograd.Function):
    """The gradients of both are the upstream gradient itself, which is the caller's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return grads[0], grads[0]


class Halves(torch.autograd.Function):
    """x of this rank's rows; the gradient of w, of all ranks' rows, in memory that is kept."""

    buffers: ClassVar[dict[Any, Tensor]] = {}

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        kept = Halves.buffers.setdefault((w.shape, w.dtype), torch.empty(w.shape).to(w.dtype))
        dist.all_reduce(kept.copy_((grads[0] * x).sum(0)))
        return grads[0] * w, kept


class Ring:
    """Outputs are in one of so many buffers, in turn."""

    def __init__(self, count: int) -> None:
        self.count, self.calls = count, 0
        self.buffers: dict[Any, list[Tensor]] = {}

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        key = (x.shape, x.dtype)
        made = (torch.empty(x.shape).to(x.dtype) for _ in range(self.count))
        ring = self.buffers.setdefault(key, [*made])
        self.calls += 1
        return Into.apply(x, y, ring[self.calls % self.count])


class Into(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return out.detach().copy_(x * y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, y = ctx.saved_tensors
        return grads[0] * y, grads[0] * x, None


def run(fn: Any, engine: Engine, **more: Any) -> CheckResult:
    given = {"reference": product, "arguments": BOTH, **more}
    return Search(kernel_check(fn, name="subject", **given), engine, OPTIONS).run()


def diagnosis(found: CheckResult) -> tuple[str, str]:
    assert found.counterexample is not None, found.reason
    return found.counterexample.diagnosis.code, found.counterexample.diagnosis.message


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_gradient_that_is_kept_for_a_later_backward_is_told(gloo: Engine, count: int) -> None:
    code, message = diagnosis(run(into_buffers(count), gloo))
    assert code == "stale-buffer"
    assert message.startswith("x: another call's backward changes ")


def test_so_is_one_that_ranks_have_reduced(gloo: Engine) -> None:
    split = {
        "arguments": {"x": Argument("rows", "width"), "w": Argument("width")},
        "sizes": {"rows": strategies.multiples("tp"), "width": strategies.sizes(1, 5)},
        "layout": Layout(inputs={"x": Shard(0)}, outputs={"output": Shard(0)}),
    }
    code, message = diagnosis(run(Halves.apply, gloo, degrees=(2,), **split))
    assert code == "stale-buffer"
    assert message.startswith("w: another call's backward changes ")


@pytest.mark.parametrize("count", [2, 3, 8])
def test_so_is_an_output_that_a_later_call_writes_over(gloo: Engine, count: int) -> None:
    code, message = diagnosis(run(Ring(count), gloo))
    assert code == "stale-buffer"
    assert message.startswith("output: a later call changes ")


@pytest.mark.parametrize(
    ("right", "reference"),
    [(FromScratch.apply, product), (Sum.apply, torch.add), (OfArena.apply, product)],
    ids=["scratch", "the upstream gradient", "an arena"],
)
def test_what_is_not_overwritten_or_not_its_own_is_right(
    gloo: Engine, right: Any, reference: Any
) -> None:
    found = run(right, gloo, reference=reference)
    assert found.verdict is Verdict.PASS, found


def test_a_gradient_may_be_sparse(gloo: Engine) -> None:
    ids = {"ids": Argument("rows", integers=(0, "vocab")), "table": Argument("vocab", "width")}
    arguments = {name: ids[name] for name in ("table", "ids")}
    found = run(rows_of, gloo, reference=lambda table, ids: table[ids], arguments=arguments)
    assert found.verdict is Verdict.PASS, found.counterexample
