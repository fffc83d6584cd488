"""What a function of tensors may be given: masks, small integers, constants, options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from torch import Tensor

from tests.ranks.kernels import odd_kernels, odd_ops
from tests.ranks.kernels.test_kernel_check import OPTIONS, SHAPES, code, product
from tpcheck import Argument, Case, Check, InvalidArgument, Layout, kernel_check
from tpcheck.engines.engine import Engine
from tpcheck.search.of_spec import cases_of
from tpcheck.search.search import Search
from tpcheck.space import Space
from tpcheck.verdict import CheckResult, Verdict


def run(fn: Any, engine: Engine, **given: Any) -> CheckResult:
    return Search(kernel_check(fn, name="subject", **given), engine, OPTIONS).run()


def picked(x: Tensor, keep: Tensor, row: Tensor) -> Tensor:
    """Rows of x [rows, width], masked."""
    assert (keep.dtype, row.dtype) == (torch.bool, torch.int32)
    return torch.where(keep, x, 0.0)[row.long()]


def test_masks_and_small_integers_are_drawn(gloo: Engine) -> None:
    arguments = {
        "x": Argument("rows", "width"),
        "keep": Argument("rows", "width", dtype="bool"),
        "row": Argument("rows", integers=(0, "rows"), dtype="int32"),
    }
    sizes = {"rows": 3}
    given = {"reference": picked, "arguments": arguments, "sizes": sizes}
    assert run(picked, gloo, **given).verdict is Verdict.PASS
    assert code(run(lambda x, keep, row: x[row.long()], gloo, **given))


def scaled(x: Tensor, *, scale: float, which: str) -> Tensor:
    return x * scale if which == "all" else x[:1] * scale


def last_rows(x: Tensor, *, scale: float, which: str) -> Tensor:
    return x * scale if which == "all" else x[-1:] * scale


def test_options_are_drawn_for_function_and_reference(gloo: Engine) -> None:
    from hypothesis import strategies as st

    options = {"scale": 0.5, "which": st.sampled_from(["all", "first"])}
    given = {"reference": scaled, "arguments": {"x": Argument("rows", "width")}, "options": options}
    assert run(scaled, gloo, **given).verdict is Verdict.PASS
    found = run(last_rows, gloo, **given)
    assert found.counterexample is not None
    assert found.counterexample.case["which"] == "first"


def test_a_constant_takes_no_gradient(gloo: Engine) -> None:
    constants = {name: Argument("rows", "width", gradient=False) for name in ("x", "y")}
    given = {"reference": product, "arguments": constants}
    assert run(odd_ops.without_autograd, gloo, **given).verdict is Verdict.PASS
    half = {"x": SHAPES["x"], "y": constants["y"]}
    found = run(lambda x, y: x * y.detach(), gloo, reference=product, arguments=half)
    assert found.verdict is Verdict.PASS
    assert found.judged and all(own.judged == own.elements for own in found.judged.values())
    dropped = run(lambda x, y: x.detach() * y, gloo, reference=product, arguments=half)
    assert code(dropped) == "gradient-dropped"


def by_two(a: Tensor, b: Tensor, *, scale: float = 1.0) -> Tensor:
    return a * b * scale


def test_names_of_tensors_are_free_where_the_function_has_others() -> None:
    for fn in (product, by_two, torch.mul, torch.ops.aten.mul, lambda *tensors: tensors[0]):
        kernel_check(fn, reference=by_two, arguments=SHAPES)
    kernel_check(by_two, reference=by_two, arguments=SHAPES, options={"scale": 2.0})


def drawn(check: Check, *dtypes: str) -> set[str]:
    seen = set()

    @settings(max_examples=40, phases=[Phase.generate])
    @given(cases_of(check.spec, Space((1,), dtypes, 1)))
    def see(case: Case) -> None:
        seen.add(case.dtype)

    see()
    return seen


def test_float64_is_drawn_alone_or_where_the_check_says_so() -> None:
    plain = kernel_check(product, reference=product, arguments=SHAPES)
    assert drawn(plain, "float64", "float32", "bfloat16") == {"float32", "bfloat16"}
    assert drawn(plain, "float64") == {"float64"}
    own = kernel_check(product, reference=product, arguments=SHAPES, dtypes=("float64", "float16"))
    assert drawn(own, "float64", "float32") == {"float64"}
    assert drawn(own, "float32") == {"float64", "float16"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"options": {"rows": 3}}, "neither tensors nor sizes"),
        ({"options": {"x": 3}}, "neither tensors nor sizes"),
        ({"options": {"bias": [None, 1.0]}}, "has bias=.None, 1.0.: give a Hypothesis"),
        ({"options": {"bias": None}}, "has bias=None: give a Hypothesis strategy"),
        ({"sizes": {"rows": []}}, "has rows=..: give"),
        ({"sizes": {"rows": range(1, 5)}}, "has rows=range.1, 5.: give"),
        ({"options": 3}, "options"),
        ({"opcheck": 1}, "opcheck"),
        ({"degrees": 2}, "degrees=2"),
        ({"degrees": ()}, "degrees"),
        ({"layout": {"x": 0}}, "tpcheck.Layout"),
        ({"layout": Layout()}, "degrees="),
        ({"sizes": {"z": 3}}, "sizes"),
        ({"sizes": [3]}, "sizes"),
        ({"memory": 3}, "memory=3"),
        ({"overwrites": None}, "overwrites=None"),
        ({"arguments": None}, "arguments=None"),
        ({"fn": torch.nn.Linear}, "two functions of tensors"),
        ({"fn": torch.nn.Linear(1, 1)}, "two functions of tensors"),
        ({"fn": odd_kernels._tuned}, "that launches it"),
        ({"rounding": 3}, "rounding"),
        ({"dtypes": ("float8",)}, "dtypes"),
        ({"dtypes": ()}, "dtypes"),
        ({"fn": lambda x: x}, r"fn=….* is given x, y by position, and takes .x.: too many"),
        ({"reference": lambda x, y, z: x}, r"reference=….*takes .x, y, z.: missing a required"),
        ({"rounding": lambda x: x}, r"rounding=….*takes .x.: too many"),
        (
            {"fn": lambda y, x: x},
            r"given x, y by position, .*takes .y, x.: give `arguments` in",
        ),
        ({"options": {"eps": 1.0}}, r"by position, and eps by keyword, and takes .*: got an une"),
    ],
)
def test_mistakes_of_a_check_are_one_line(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        own = {"fn": product, "reference": product, "arguments": SHAPES}
        kernel_check(**{**own, **given})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dtype": "float32"}, "dtype"),
        ({"dtype": "int32"}, "of a tensor of integers"),
        ({"gradient": 1}, "gradient"),
    ],
)
def test_mistakes_are_one_line(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        Argument("rows", **given)
    assert len(str(caught.value).splitlines()) == 1
