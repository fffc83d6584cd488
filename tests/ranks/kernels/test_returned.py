"""What a function has returned, outputs and gradients, is left alone by its later calls."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

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


class IntoBuffer(Product):
    """The gradient of x is in memory that is kept: where it goes on to another backward, that of a
    later call is there before."""

    buffers: ClassVar[dict[Any, Tensor]] = {}

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        kept = IntoBuffer.buffers.setdefault((x.shape, x.dtype), torch.empty(x.shape).to(x.dtype))
        return kept.copy_(grads[0] * y), grads[0] * x


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


def test_a_gradient_that_is_kept_for_the_next_backward_is_told(gloo: Engine) -> None:
    code, message = diagnosis(run(IntoBuffer.apply, gloo))
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
    [(FromScratch.apply, product), (Sum.apply, torch.add)],
    ids=["scratch", "the upstream gradient"],
)
def test_what_is_not_overwritten_or_not_its_own_is_right(
    gloo: Engine, right: Any, reference: Any
) -> None:
    found = run(right, gloo, reference=reference)
    assert found.verdict is Verdict.PASS, found
