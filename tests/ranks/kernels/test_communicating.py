"""Functions that communicate as subjects, at more than one rank: async collectives come late."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from tests.ranks.kernels import communicating
from tpcheck import Argument, Case, Layout, Shard, kernel_check, strategies
from tpcheck.engines.engine import Engine
from tpcheck.evidence import Undisciplined
from tpcheck.runner.runner import Runner
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict
from tpcheck.vocabulary import Habit, Kind

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


SWEEP = pytest.mark.sweep


@pytest.mark.parametrize(
    ("right", "layout"),
    [
        pytest.param(communicating.Gathered.apply, GATHERS, marks=SWEEP),
        (communicating.Averaged.apply, GATHERS),
        (communicating.WithSum.apply, SCATTERS),
    ],
    ids=["gather", "gather-and-mean", "scatter"],
)
def test_a_right_one_passes_at_each_degree(right: Any, layout: Layout, gloo: Engine) -> None:
    found = run(right, gloo, layout)
    assert found.verdict is Verdict.PASS and found.tp_degrees == [2, 4], found


def test_all_ranks_make_the_same_calls_whatever_one_of_them_sees(gloo: Engine) -> None:
    """Its seed has all calls: with inputs that change in place, and in memory of others."""
    check = kernel_check(
        communicating.OtherEachTime.apply,
        reference=twice,
        arguments={"x": Argument("rows", "width")},
        degrees=(2,),
        layout=GATHERS,
    )
    runner = Runner(check, gloo)
    runner.renew()
    found = runner.run(Case(dims={"rows": 4, "width": 3}, mesh={"tp": 2}, seed=0))
    assert {m.kind for m in found.mismatches} == {Kind.DISCIPLINE}
    habits = {m.detail.habit for m in found.mismatches if isinstance(m.detail, Undisciplined)}
    assert habits == {Habit.NOT_REPEATED, Habit.SECOND_BACKWARD}


@pytest.mark.parametrize(
    ("wrong", "layout", "codes"),
    [
        (communicating.ReadEarly.apply, GATHERS, TOO_EARLY),
        pytest.param(communicating.ReadsOldBuffer.apply, GATHERS, TOO_EARLY, marks=SWEEP),
        (communicating.OnOneRank.apply, GATHERS, {"collective-mismatch"}),
        (communicating.WithoutSum.apply, SCATTERS, {"missing-all-reduce"}),
        # the others wait in a collective that the last rank does not enter any more
        (communicating.LastRaisesInSecond.apply, GATHERS, {"second-backward"}),
        (communicating.last_wants_leaf, GATHERS, {"shared-input"}),
        pytest.param(
            communicating.LastHasAnotherShape.apply, GATHERS, {"wrong-placement"}, marks=SWEEP
        ),
        (communicating.LastErrsEachFourthTime.apply, GATHERS, {"not-repeatable"}),
        pytest.param(
            communicating.LastHasAnotherShapeAgain.apply, GATHERS, {"not-repeatable"}, marks=SWEEP
        ),
    ],
    ids=[
        *("early", "old-buffer", "one-rank", "no-sum"),
        *("last-raises", "last-wants-leaf", "last-shape", "last-fourth", "last-again"),
    ],
)
def test_a_wrong_one_is_named(wrong: Any, layout: Layout, codes: set[str], gloo: Engine) -> None:
    assert code(run(wrong, gloo, layout)) in codes
