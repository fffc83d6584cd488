"""Integer cases: every sum is exact, so the candidate must be, in every dtype."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

from fixtures.mutants.build import row
from fixtures.parallel.linear import RowLinear
from properties import embedding, fused, linear
from tests.candidates import linear_dims
from tpcheck import Check
from tpcheck.case import DTYPES, Case
from tpcheck.engines.engine import Engine
from tpcheck.oracle.pose import pose
from tpcheck.runner.runner import Runner
from tpcheck.search import drawing
from tpcheck.search.of_spec import cases_of
from tpcheck.space import Space
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
CASE = Case(dims=linear_dims(12, 6, batch=2, seq=3, bias=True), dtype="bfloat16", integers=True)


def drawn(spec: Spec, dtype: str, count: int) -> list[Case]:
    whole = replace(spec, modes=())  # with all gradients there are
    cases = drawing.sample(cases_of(whole, Space((2, 4), (dtype,), 4)), count, dtype)
    return [replace(case, integers=True, magnitude=0) for case in cases]


#: In each run every layer has two dtypes, and every dtype half of the layers.
EACH = [
    pytest.param(check, dtype, marks=() if (i + j) % 2 else pytest.mark.sweep)
    for (i, check), (j, dtype) in product(enumerate(CHECKS), enumerate(DTYPES))
]


@pytest.mark.parametrize(("check", "dtype"), EACH, ids=lambda x: getattr(x, "title", x))
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
