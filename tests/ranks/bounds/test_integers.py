"""Integer cases: every sum is exact, so the candidate must be, in every dtype."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fixtures.mutants.build import row
from fixtures.parallel.linear import RowLinear
from properties import embedding, fused, linear
from tpcheck import Check, specs, strategies
from tpcheck.case import DTYPES, Case, Space
from tpcheck.engines.engine import Engine
from tpcheck.errors import CaseError
from tpcheck.oracle.pose import pose
from tpcheck.runner.runner import Runner
from tpcheck.spec import Spec
from tpcheck.verdict import Verdict

CHECKS = [
    linear.column_linear,
    linear.row_linear,
    linear.row_linear_sp,
    embedding.embedding,
    fused.all_gather_linear,
    fused.linear_reduce_scatter,
]
DIMS = {"batch": 2, "seq": 3, "in_features": 12, "out_features": 6, "bias": True}
CASE = Case(dims=DIMS, dtype="bfloat16", integers=True)


def drawn(spec: Spec, dtype: str, count: int) -> list[Case]:
    cases = strategies.sample(strategies.of(spec, Space((2, 4), (dtype,), 4)), count, dtype)
    return [replace(case, integers=True, magnitude=0) for case in cases]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.spec.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_correct_candidate_is_exact(gloo: Engine, check: Check, dtype: str) -> None:
    runner = Runner(check, gloo)
    exact = 0
    for case in drawn(check.spec, dtype, 4):
        assert runner.run(case).verdict is Verdict.PASS, case.describe()
        for target in pose(check.spec, case).problems[0].targets:
            assert target.own is not None
            if not target.spread.sigma.any():
                assert torch.equal(target.own.double(), target.value)
                exact += target.kind != "param" and "@step" not in target.name
    assert exact >= 8


class SlightlyMore(RowLinear):
    """Half a percent too much, on one rank."""

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        y = super().multiply(x)
        return y * 1.005 if self.rank == self.degree - 1 else y


def test_what_hides_in_the_rounding_of_bfloat16_shows(gloo: Engine) -> None:
    runner = Runner(Check(row.spec, row.candidate(SlightlyMore), name="more"), gloo)
    assert runner.run(replace(CASE, integers=False)).verdict is Verdict.PASS
    found = runner.run(CASE)
    assert found.verdict is Verdict.FAIL
    assert {(m.kind, m.bound) for m in found.mismatches} >= {("output", 0.0)}


def test_sums_too_large_for_the_dtype_keep_their_bounds() -> None:
    wide = replace(CASE, dims={**DIMS, "in_features": 200})
    by_dtype = {}
    for dtype in ("bfloat16", "float32"):
        problem = pose(row.spec, replace(wide, dtype=dtype)).problems[0]
        by_dtype[dtype] = {t.kind: bool(t.spread.sigma.any()) for t in problem.targets}
    assert by_dtype["bfloat16"]["output"] and not by_dtype["bfloat16"]["param_grad"]
    assert not by_dtype["float32"]["output"]


def test_after_a_step_there_are_bounds_again() -> None:
    problem = pose(row.spec, replace(CASE, step=True)).problems[0]
    loose = {t.name for t in problem.targets if t.kind == "param" or "@step" in t.name}
    assert {"weight", "bias", "output@step"} <= loose
    sigma = {t.name: t.spread.sigma for t in problem.targets if t.kind in ("param", "output")}
    assert sigma["weight"].any() and sigma["output@step"].any() and not sigma["output"].any()


def test_only_linear_specs_draw_them() -> None:
    space = Space((2,), ("float64",), 2)
    flags = [c.integers for c in strategies.sample(strategies.of(row.spec, space), 30, "k")]
    assert any(flags) and not all(flags)
    others = strategies.sample(strategies.of(specs.mlp(), space), 30, "k")
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
