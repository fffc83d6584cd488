"""The example that is worked by hand: what it gives, and what each rank adds to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures.parallel.linear import ColumnLinear, RowLinear
from properties.worked import Pair, spec, worked_example
from tpcheck import Case
from tpcheck.engines.engine import Engine
from tpcheck.oracle.pose import pose
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict


class NotReduced(RowLinear):
    def sum_output(self, partial: Any) -> Any:
        return partial


def not_reduced(case: Case, mesh: Any) -> Pair:
    group = mesh["tp"].get_group()
    up = ColumnLinear(2, 4, bias=False, group=group)
    return Pair(up, NotReduced(4, 2, bias=False, group=group))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_it_gives_four_and_five(gloo: Engine, dtype: str) -> None:
    case = Case(mesh={"tp": 2}, dtype=dtype)
    (output,) = (t for t in pose(spec, case).problems[0].targets if t.name == "output")
    assert output.value.flatten().tolist() == [4.0, 5.0]
    assert Runner(worked_example, gloo).run(case).verdict is Verdict.PASS


def test_without_the_sum_each_rank_has_its_own_term(gloo: Engine) -> None:
    wrong = replace(worked_example, candidate=not_reduced)
    result = Runner(wrong, gloo).run(Case(mesh={"tp": 2}))
    found = {m.rank: (m.expected, m.actual) for m in result.mismatches if m.kind == "output"}
    # the element that is furthest off: [1, 2] and [3, 3] for [4, 5]
    assert found == {0: (4.0, 1.0), 1: (5.0, 3.0)}
