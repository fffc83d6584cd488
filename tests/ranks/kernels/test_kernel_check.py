"""Functions of tensors as subjects: what is found of their values, memory and discipline."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tpcheck import Argument, Case, InvalidArgument, kernel_check
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict

OPTIONS = Options(examples=50, corpus=None, shrink_cases=10)
SHAPES = {"x": Argument("rows", "width"), "y": Argument("rows", "width")}


def product(x: Tensor, y: Tensor) -> Tensor:
    return x * y


def run(fn: Any, engine: Engine, **more: Any) -> CheckResult:
    given = {"reference": product, "arguments": SHAPES, **more}
    return Search(kernel_check(fn, name="subject", **given), engine, OPTIONS).run()


def code(found: CheckResult) -> str:
    assert found.counterexample is not None, found.reason
    return found.counterexample.diagnosis.code


def test_a_right_function_passes_at_one_rank_in_many_formats(gloo: Engine) -> None:
    found = run(product, gloo)
    assert found.verdict is Verdict.PASS and found.tp_degrees == [1]


class Backwards(torch.autograd.Function):
    """x · y with a backward that a test replaces."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.backwards = 0
        return x * y


class TwiceAsMuchTheSecondTime(Backwards):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        ctx.backwards += 1
        return grads[0] * y * ctx.backwards, grads[0] * x * ctx.backwards


def test_what_its_first_calls_do_not_show_is_met_where_calls_are_made_again(gloo: Engine) -> None:
    check = kernel_check(TwiceAsMuchTheSecondTime.apply, reference=product, arguments=SHAPES)
    runner = Runner(check, gloo)
    case = Case(dims={"rows": 2, "width": 3}, mesh={"tp": 1})
    for again, verdict in ((True, Verdict.FAIL), (False, Verdict.PASS), (True, Verdict.FAIL)):
        runner.again = again
        assert runner.run(case).verdict is verdict


class IgnoresUpstream(Backwards):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return y.clone(), x.clone()


class ChangesUpstream(Backwards):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        both = grads[0] * y, grads[0] * x
        grads[0].data.zero_()
        return both


def changes_its_input(x: Tensor, y: Tensor) -> Tensor:
    out = x.clone() * y
    x.data.add_(1)
    return out


def writes_beside_its_input(x: Tensor, y: Tensor) -> Tensor:
    out, memory = x * y, torch.empty(0, dtype=torch.uint8)
    if x.storage_offset() and x.numel():
        memory.set_(x.untyped_storage())[0] ^= 1
    return out


def takes_rows_for_contiguous(x: Tensor, y: Tensor) -> Tensor:
    flat = torch.as_strided(x.detach(), x.shape, (x.shape[1], 1))
    return (x + (flat - x.detach())) * y


_held: dict[Any, Tensor] = {}


class OneBuffer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        buffer = _held.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype))
        return torch.mul(x, y, out=buffer)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return grads[0] * y, grads[0] * x


class OneBufferForBackward(torch.autograd.Function):
    """y is kept for backward in memory that all calls share."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.kept = _held.setdefault(("kept", y.shape, y.dtype), torch.empty(y.shape, dtype=y.dtype))
        ctx.kept.copy_(y)
        return x * y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (x,) = ctx.saved_tensors
        return grads[0] * ctx.kept, grads[0] * x


class Both(torch.autograd.Function):
    """x · y, right wherever everything is asked for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y


class OneForAll(Both):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, Any]:
        x, y = ctx.saved_tensors
        return (grads[0] * y, grads[0] * x) if ctx.needs_input_grad[0] else (None, None)


class OncePerAddress(Both):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, Any]:
        x, y = ctx.saved_tensors
        one = x.numel() and x.data_ptr() == y.data_ptr()
        return grads[0] * y, None if one else grads[0] * x


class IntoTheLeaf(Both):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, Any]:
        x, y = ctx.saved_tensors
        if x.is_leaf and x.requires_grad:
            x.grad = grads[0] * y + (0.0 if x.grad is None else x.grad)
        return None, grads[0] * x


_calls = itertools.count(1)


def wrong_each_fourth_time(x: Tensor, y: Tensor) -> Tensor:
    return x * y * (1.0 if next(_calls) % 4 else 1.5)


def wrong_from_the_fourth_time_on(x: Tensor, y: Tensor) -> Tensor:
    return x * y * (1.0 if next(_calls) < 4 else 1.5)


def through_all_rows(x: Tensor, y: Tensor) -> Tensor:
    return x * y + 0.0 * (x.sum() if x.numel() else 0.0)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (OneForAll.apply, "partial-gradients"),
        (OncePerAddress.apply, "aliased-arguments"),
        (IntoTheLeaf.apply, "shared-input"),
        (wrong_each_fourth_time, "not-repeatable"),
        (wrong_from_the_fourth_time_on, "not-repeatable"),
        (through_all_rows, "rows-not-independent"),
        (TwiceAsMuchTheSecondTime.apply, "second-backward"),
        (IgnoresUpstream.apply, "upstream-ignored"),
        (ChangesUpstream.apply, "input-overwritten"),
        (changes_its_input, "input-overwritten"),
        (writes_beside_its_input, "input-overwritten"),
        (takes_rows_for_contiguous, "stride-ignored"),
        (OneBuffer.apply, "stale-buffer"),
        (OneBufferForBackward.apply, "stale-buffer"),
    ],
    ids=[
        "partial",
        "aliased",
        "leaf",
        "each-fourth",
        "from-the-fourth",
        "rows",
        "second",
        "upstream",
        "changed-upstream",
        "changed",
        "beside",
        "strides",
        "buffer",
        "buffer-for-backward",
    ],
)
def test_what_a_wrong_function_does_is_named(wrong: Any, named: str, gloo: Engine) -> None:
    assert code(run(wrong, gloo)) == named


def in_float32(x: Tensor, y: Tensor) -> Tensor:
    return x.float() * y.float()


def in_bfloat16(x: Tensor, y: Tensor) -> Tensor:
    return (x.float() * y.float()).bfloat16()


def test_an_output_may_be_wider_than_the_references_and_not_narrower(gloo: Engine) -> None:
    check = kernel_check(in_float32, name="subject", reference=product, arguments=SHAPES)
    for dtype, verdict in (("bfloat16", Verdict.PASS), ("float64", Verdict.FAIL)):
        options = replace(OPTIONS, dtypes=(dtype,))
        assert Search(check, gloo, options).run().verdict is verdict
    assert code(run(in_bfloat16, gloo)) == "precision-loss"


def test_what_is_declared_may_be_overwritten(gloo: Engine) -> None:
    assert run(changes_its_input, gloo, overwrites=("x",)).verdict is Verdict.PASS
    assert code(run(changes_its_input, gloo, overwrites=("y",))) == "input-overwritten"
    found = run(ChangesUpstream.apply, gloo, overwrites=("d output",))
    assert found.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"arguments": {"x": 3}}, "tpcheck.Argument"),
        ({"overwrites": ("z",)}, "overwrites"),
        ({"reference": None}, "two functions"),
    ],
)
def test_mistakes_are_one_line(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        kernel_check(product, **{"reference": product, "arguments": SHAPES, **given})
    assert len(str(caught.value).splitlines()) == 1


class Unused(torch.autograd.Function):
    """x · y and x + y, where an upstream gradient may be missing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, Any]:
        x, y = ctx.saved_tensors
        return grads[0] * y + grads[1], grads[0] * x + grads[1]


def test_a_backward_from_some_outputs_raises_by_name(gloo: Engine) -> None:
    check = kernel_check(
        Unused.apply, name="subject", reference=lambda x, y: (x * y, x + y), arguments=SHAPES
    )
    found = Search(check, gloo, OPTIONS).run()
    assert code(found) == "partial-gradients"
    assert found.counterexample is not None
    assert found.counterexample.case.gradients == "some"


def test_a_size_that_indices_need_is_drawn_with_one_at_least(gloo: Engine) -> None:
    arguments = {"table": Argument("rows", "width"), "at": Argument("count", integers=(0, "rows"))}
    check = kernel_check(
        lambda table, at: table[at],
        name="subject",
        reference=lambda table, at: table.index_select(0, at),
        arguments=arguments,
    )
    options = replace(OPTIONS, dtypes=("float64", "float32"))  # torch adds up in bfloat16 there
    found = Search(check, gloo, options).run()
    assert found.verdict is Verdict.PASS and found.examples == OPTIONS.examples
