"""Buffers that a forward makes, or puts others in the place of: each run begins with those that the
module was built with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tpcheck import Case, Check, Layout, Replicate, Spec
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind


class Kept(nn.Module):
    """Divides by the largest of what it was given so far, and keeps that."""

    more = 0.0

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def seen(self) -> Tensor | None:
        return getattr(self, "largest", None)

    def keep(self, now: Tensor) -> None:
        self.largest = now

    def forward(self, x: Tensor) -> Tensor:
        now, before = x.detach().abs().amax(0) + self.more, self.seen()
        now = now if before is None else torch.maximum(now, before)
        self.keep(now)
        return x * self.weight / (1 + now)


class Resized(Kept):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("largest", torch.empty(0))

    def seen(self) -> Tensor | None:
        return self.largest if self.largest.numel() else None


class OfNone(Kept):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("largest", None)


class Registered(Kept):
    def keep(self, now: Tensor) -> None:
        self.register_buffer("largest", now)


def finalize(module: nn.Module, mesh: Any) -> None:
    if "dp" in mesh.mesh_dim_names:
        dist.all_reduce(module.weight.grad, group=mesh["dp"].get_group())
        module.weight.grad.div_(mesh["dp"].size())


def result(engine: Engine, right: type[Kept], candidate: type[Kept], **about: Any) -> CaseResult:
    spec = Spec(
        "kept",
        lambda space: None,
        lambda case: right(case["width"]),
        lambda case, draw: {"x": draw("x", case["rows"], case["width"])},
        lambda case: Layout(params={"*": Replicate()}),
        dp_gradients="mean",
        finalize=finalize,
    )
    check = Check(spec, lambda case, mesh: candidate(case["width"]))
    return Runner(check, engine).run(Case({"rows": 4, "width": 3}, **about))


CASES = [
    {"mesh": {"tp": 2}, "microbatches": 2, "dtype": "float64"},
    {"mesh": {"tp": 2}, "step": True, "dtype": "bfloat16"},
    {"mesh": {"dp": 2, "tp": 2}, "microbatches": 2, "step": True},
]


@pytest.mark.parametrize("about", CASES, ids=["microbatches", "step", "dp"])
@pytest.mark.parametrize("kind", [Resized, OfNone, Registered])
def test_each_run_begins_without_them(
    gloo: Engine, kind: type[Kept], about: dict[str, Any]
) -> None:
    found = result(gloo, kind, kind, **about)
    assert found.verdict is Verdict.PASS, found.mismatches


def test_what_a_wrong_one_puts_there_is_seen(gloo: Engine) -> None:
    class Off(Resized):
        def keep(self, now: Tensor) -> None:
            self.largest = now + 1

    found = result(gloo, Resized, Off, mesh={"tp": 2})
    assert {(m.kind, m.tensor) for m in found.mismatches} == {(Kind.PARAM, "largest")}
