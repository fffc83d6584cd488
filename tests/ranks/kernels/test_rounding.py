"""How exact a function must be: by the reference's formula, or by the one that is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from properties._kernels import ours
from tests.ranks.kernels.test_kernel_check import OPTIONS, SHAPES, code
from tpcheck import Argument, InvalidArgument, kernel_check
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.search.search import Search
from tpcheck.verdict import Verdict


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight)


def by_squares(x: Tensor, weight: Tensor) -> Tensor:
    """The same in exact numbers; x is far from zero."""
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) * torch.rsqrt(variance.clamp_min(0.0) + 1e-5) * weight


def by_squares_and_wrong(x: Tensor, weight: Tensor) -> Tensor:
    return by_squares(x, weight) * 1.01


ROWS = {
    "arguments": {"x": Argument("rows", "width"), "weight": Argument("width")},
    "sizes": {"width": 64},
    "families": ("shifted",),
}


def of_norm(fn: Any, gloo: Engine, **more: Any) -> Any:
    check = kernel_check(fn, name="subject", reference=norm, **{**ROWS, **more})
    return Search(check, gloo, OPTIONS).run()


def test_bounds_are_those_of_the_formula_that_is_given(gloo: Engine) -> None:
    assert of_norm(by_squares, gloo).verdict is Verdict.FAIL
    assert of_norm(by_squares, gloo, rounding=by_squares).verdict is Verdict.PASS
    assert of_norm(by_squares_and_wrong, gloo, rounding=by_squares).verdict is Verdict.FAIL


def test_a_formula_of_another_function_is_refused(gloo: Engine) -> None:
    with pytest.raises(InvalidArgument, match=r"rounding= gives other numbers for 'output'"):
        of_norm(by_squares, gloo, rounding=by_squares_and_wrong)
    with pytest.raises(InvalidArgument, match=r"rounding"):
        kernel_check(norm, reference=norm, arguments={}, rounding=3)  # type: ignore[arg-type]


def in_steps(x: Tensor, y: Tensor) -> Tensor:
    """In low precision each step is rounded, and in no memory format more than in another."""
    return x * torch.sigmoid(x) * y


@pytest.mark.parametrize(  # all together are a hair outside; one element is
    "seed", [pytest.param(0, marks=pytest.mark.sweep), 3]
)
def test_what_is_only_less_exact_is_not_blamed_on_strides_or_upstream_gradients(
    seed: int, gloo: Engine
) -> None:
    def at_once(x: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.silu(x) * y

    options = replace(OPTIONS, dtypes=("bfloat16",), examples=100, seed=seed)
    check = kernel_check(in_steps, name="subject", reference=at_once, arguments=SHAPES)
    assert code(Search(check, gloo, options).run()) == "precision-loss"


#: Right kernels on rows of equal numbers, whose rounding errors are equal, too: called wrong once,
#: by the norm of a gradient that one mean moves, and by a common scale error.
ALIKE = {
    "one mean": (
        ours.layer_norm_kernel,
        Case({"rows": 1, "width": 1023}, "float32", {"tp": 1}, 1, 2, family="equal"),
    ),
    "rows alike": (
        ours.swiglu_kernel,
        Case({"rows": 5, "width": 1025}, "bfloat16", {"tp": 1}, 757, memory="aliased",
             family="equal"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ALIKE)
def test_equal_numbers_are_rounded_alike(what: str, gloo: Engine) -> None:
    check, case = ALIKE[what]
    result = Runner(check, gloo).run(case)
    assert result.verdict is Verdict.PASS, result.mismatches
