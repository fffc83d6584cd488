"""The first look: bounds from a run or two in the case's dtype."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.unit.oracle.test_expected import SEVERAL
from tpcheck import Layout, Spec
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.effort import CLOSER, FLOOR, SCREEN
from tpcheck.oracle.pose import pose

ROW = {"batch": 2, "seq": 3, "in_features": 6, "out_features": 8, "bias": True}


def beside(x: Tensor, w: Tensor) -> dict[str, Tensor]:
    """What is moved and what rounds, also in float32; and what nothing is of."""
    wide = x.float() @ w.float()
    return {
        "moved": x.t(),
        "both": torch.cat([x, x @ w], -1),
        "wide": wide.to(torch.promote_types(x.dtype, torch.float32)),
        "none": x[:, :0],
    }


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_the_least_bounds_are_no_wider_than_those_of_few_runs(dtype: str) -> None:
    spec = Spec(
        name="beside",
        cases=[Case()],
        reference=lambda case: beside,
        inputs=lambda case, draw: {"x": draw("x", 8, 6), "w": draw("w", 6, 6)},
        layout=lambda case: Layout(),
    )
    first = pose(spec, Case(dtype=dtype, seed=3), FLOOR)
    assert first.effort is FLOOR and first.closely is not None
    least, few = (
        {t.name: t.spread for t in p.problems[0].targets} for p in (first, first.closely(CLOSER))
    )
    assert not bool(least["moved"].sigma.any() | few["moved"].sigma.any())
    assert not bool(least["both"].sigma[:, :6].any()) and bool(least["both"].sigma[:, 6:].all())
    for name, own in least.items():
        assert bool((own.sigma <= 3 * few[name].sigma).all()), name


@pytest.mark.parametrize("error", [ValueError("no such dtype"), SystemExit(3)])
def test_a_reference_that_lower_dtypes_end_is_told_in_a_line(error: BaseException) -> None:
    def wide_alone(x: Tensor) -> Tensor:
        if x.dtype != torch.float64:
            raise error
        return x * 0.3

    spec = Spec(
        name="wide",
        cases=[Case()],
        reference=lambda case: wide_alone,
        inputs=lambda case, draw: {"x": draw("x", 2, 4)},
        layout=lambda case: Layout(),
    )
    for dtype in ("float32", "bfloat16"):
        words = rf"spec 'wide': reference's forward or backward in {dtype} raised"
        with pytest.raises(InvalidArgument, match=words):
            pose(spec, Case(dtype=dtype), FLOOR)
    assert pose(spec, Case(), FLOOR).effort is SCREEN  # which float32 says nothing of


def test_integers_that_rounding_decides_are_judged_under_noisy_runs() -> None:
    ids = replace(
        SEVERAL, forward=lambda m, inputs: {"n": (m(*inputs.values()) * 1e3).round().long()}
    )
    assert pose(ids, Case(dtype="bfloat16"), FLOOR).effort is SCREEN
    assert pose(ids, Case(dtype="float32"), FLOOR).effort is FLOOR
