"""Integer cases: sums are exact, and where they can't be there are bounds again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.candidates import linear_dims
from tpcheck import specs
from tpcheck.case import Case
from tpcheck.errors import CaseError
from tpcheck.oracle.pose import pose
from tpcheck.search import drawing
from tpcheck.search.of_spec import cases_of
from tpcheck.space import Space

ROW = specs.row_linear()
DIMS = linear_dims(12, 6, batch=2, seq=3, bias=True)
CASE = Case(dims=DIMS, dtype="bfloat16", integers=True)


def test_sums_too_large_for_the_dtype_keep_their_bounds() -> None:
    wide = replace(CASE, dims=DIMS | {"in_features": 200})
    by_dtype = {}
    for dtype in ("bfloat16", "float32"):
        problem = pose(ROW, replace(wide, dtype=dtype)).problems[0]
        by_dtype[dtype] = {t.kind: bool(t.spread.sigma.any()) for t in problem.targets}
    assert by_dtype["bfloat16"]["output"] and not by_dtype["bfloat16"]["param_grad"]
    assert not by_dtype["float32"]["output"]


def test_after_a_step_there_are_bounds_again() -> None:
    problem = pose(ROW, replace(CASE, step=True)).problems[0]
    loose = {t.name for t in problem.targets if t.kind == "param" or "@step" in t.name}
    assert {"weight", "bias", "output@step"} <= loose
    sigma = {t.name: t.spread.sigma for t in problem.targets if t.kind in ("param", "output")}
    assert sigma["weight"].any() and sigma["output@step"].any() and not sigma["output"].any()


def test_only_linear_specs_draw_them() -> None:
    space = Space((2,), ("float64",), 2)
    flags = [c.integers for c in drawing.sample(cases_of(ROW, space), 30, "k")]
    assert any(flags) and not all(flags)
    others = drawing.sample(cases_of(specs.mlp(), space), 30, "k")
    assert not any(case.integers for case in others)


def test_the_flag_is_part_of_a_case() -> None:
    assert Case.from_dict(CASE.to_dict()) == CASE != replace(CASE, integers=False)
    assert "integers=True" in CASE.describe()
    # cases saved before there was such a field keep their ids
    assert "integers" not in Case().canonical()
    with pytest.raises(CaseError, match="sums would round"):
        replace(CASE, magnitude=4)
    with pytest.raises(CaseError, match="neither true nor false"):
        Case(integers=1)  # type: ignore[arg-type]
