"""What sizes, integers and overwritten arguments of a kernel may be: one line where they can't."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.ranks.kernels.test_kernel_check import OPTIONS
from tpcheck import Argument, Check, InvalidArgument, kernel_check
from tpcheck.engines.engine import Engine
from tpcheck.search.search import Search
from tpcheck.verdict import Verdict

ROWS = Argument("rows", "width")


def twice(x: Tensor) -> Tensor:
    return x * 2


def scaled(x: Tensor, by: Tensor) -> Tensor:
    return x * by


def of_integers(low: int, high: int, dtype: str) -> Check:
    by = Argument("width", integers=(low, high), dtype=dtype)
    return kernel_check(scaled, reference=scaled, arguments={"x": ROWS, "by": by})


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (
            kernel_check(twice, reference=twice, arguments={"x": ROWS}, overwrites=("d nothing",)),
            "overwrites= names 'd nothing': give names of arguments, or of d output",
        ),
        (
            kernel_check(twice, reference=twice, arguments={"x": ROWS}, sizes={"width": 2.5}),
            "size 'width' is 2.5: give whole numbers, 0 or more",
        ),
        (
            kernel_check(
                twice, reference=twice, arguments={"x": ROWS}, sizes={"rows": st.just("3")}
            ),
            "size 'rows' is '3': give whole numbers, 0 or more",
        ),
        (
            of_integers(0, 1000, "int8"),
            "argument 'by': integers from 0 to 999 are asked of int8, which holds -128 to 127",
        ),
        (of_integers(0, 257, "uint8"), "which holds 0 to 255"),
    ],
    ids=["overwrites", "half", "text", "int8", "uint8"],
)
def test_what_can_not_be_asked_is_one_line(check: Check, says: str, gloo: Engine) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        Search(check, gloo, OPTIONS).run()


def test_a_tensor_that_is_judged_where_it_is_empty_alone_was_not(gloo: Engine) -> None:
    check = kernel_check(
        lambda x: x * 2 - 777, reference=lambda x: x * 2 + float("inf"), arguments={"x": ROWS}
    )
    result = Search(check, gloo, replace(OPTIONS, examples=12)).run()
    assert result.verdict is Verdict.UNKNOWN and "judged in no case" in str(result.reason)
    assert result.more, "other cases may judge it"


@pytest.mark.parametrize(
    "given",
    [
        lambda: Argument("r", dtype=[], integers=(0, 2)),  # type: ignore[arg-type]
        lambda: kernel_check(twice, reference=twice, arguments={"x": ROWS}, overwrites=([],)),  # type: ignore[arg-type]
        lambda: kernel_check(
            twice,
            reference=twice,
            arguments={"x": ROWS},
            name=torch.ones(2),  # type: ignore[arg-type]
        ),
    ],
    ids=["dtype", "overwrites", "name"],
)
def test_what_can_not_be_looked_up_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument):
        given()


def test_where_everything_is_empty_nothing_was_compared(gloo: Engine) -> None:
    check = kernel_check(torch.neg, reference=twice, arguments={"x": ROWS}, sizes={"rows": 0})
    result = Search(check, gloo, OPTIONS).run()
    assert result.verdict is Verdict.UNKNOWN
    assert str(result.reason).startswith("nothing was compared: no tensor had an element, in")


@pytest.mark.parametrize(
    "check",
    [
        kernel_check(twice, reference=twice, arguments={"x": ROWS}, overwrites=("d output",)),
        of_integers(0, 128, "int8"),
        of_integers(0, 256, "uint8"),
        kernel_check(
            twice,
            reference=twice,
            arguments={"x": Argument("a", "z")},
            sizes={"z": st.sampled_from([2, 4]), "a": lambda sizes: sizes["z"] * 2},
        ),
    ],
    ids=["upstream", "int8", "uint8", "a size of a later name"],
)
def test_what_can_be_is_run(check: Check, gloo: Engine) -> None:
    assert Search(check, gloo, OPTIONS).run().verdict is Verdict.PASS


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, by: Tensor) -> Tensor:
        ctx.save_for_backward(x.clone(), by)
        ctx.mark_dirty(x)
        return x.mul_(by)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor]:
        x, by = ctx.saved_tensors
        (grad,) = upstream
        return grad * by, (grad * x).sum(0)


@pytest.mark.parametrize(
    "function", [InPlace.apply, lambda x, by: x.mul_(by)], ids=["marked dirty", "of torch"]
)
def test_what_changes_its_argument_in_place_may(function: Any, gloo: Engine) -> None:
    """A leaf that takes a gradient must not be changed: a tensor that is not a leaf is given."""
    check = kernel_check(
        function,
        reference=scaled,
        arguments={"x": ROWS, "by": Argument("width")},
        overwrites=("x",),
    )
    assert Search(check, gloo, OPTIONS).run().verdict is Verdict.PASS
