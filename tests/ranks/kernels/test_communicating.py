"""Functions that communicate as subjects, at more than one rank: async collectives come late."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from tests.ranks.kernels import communicating
from tpcheck import Argument, Layout, Shard, kernel_check, strategies
from tpcheck.engines.engine import Engine
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict

OPTIONS = Options(examples=8, corpus=None, shrink_cases=8)
GATHERS = Layout(inputs={"x": Shard(0)})
#: Whether the rank that comes last reads too early, too, is a race.
TOO_EARLY = {"unwritten-memory", "stale-buffer", "not-repeatable"}
SCATTERS = Layout(outputs={"output": Shard(0)})


def twice(x: Tensor) -> Tensor:
    return 2 * x


def run(fn: Any, engine: Engine, layout: Layout = GATHERS) -> CheckResult:
    check = kernel_check(
        fn,
        name="subject",
        reference=twice,
        arguments={"x": Argument("rows", "width")},
        sizes={"rows": strategies.multiples("tp"), "width": strategies.sizes(1, 5)},
        degrees=(2, 4),
        layout=layout,
    )
    return Search(check, engine, OPTIONS).run()


def code(found: CheckResult) -> str:
    assert found.counterexample is not None, found.reason
    return found.counterexample.diagnosis.code


@pytest.mark.parametrize(
    ("right", "layout"),
    [(communicating.Gathered.apply, GATHERS), (communicating.WithSum.apply, SCATTERS)],
    ids=["gather", "scatter"],
)
def test_a_right_one_passes_at_each_degree(right: Any, layout: Layout, gloo: Engine) -> None:
    found = run(right, gloo, layout)
    assert found.verdict is Verdict.PASS and found.tp_degrees == [2, 4], found


@pytest.mark.parametrize(
    ("wrong", "layout", "codes"),
    [
        (communicating.ReadEarly.apply, GATHERS, TOO_EARLY),
        (communicating.ReadsOldBuffer.apply, GATHERS, TOO_EARLY),
        (communicating.OnOneRank.apply, GATHERS, {"collective-mismatch"}),
        (communicating.WithoutSum.apply, SCATTERS, {"missing-all-reduce"}),
    ],
    ids=["early", "old-buffer", "one-rank", "no-sum"],
)
def test_a_wrong_one_is_named(wrong: Any, layout: Layout, codes: set[str], gloo: Engine) -> None:
    assert code(run(wrong, gloo, layout)) in codes
