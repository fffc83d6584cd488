"""Which path was taken: what must run is counted on each rank, and said where it did not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fixtures.parallel.linear import RowLinear
from tests.candidates import CASE, check
from tpcheck import Argument, Case, Check, kernel_check
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.evidence import PathNotTaken
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind, Phase

TWICE = replace(CASE, microbatches=2, step=True)


class Sines(RowLinear):
    """Has an operator in forward that no reference has."""

    def forward(self, x: Tensor) -> Tensor:
        torch.sin(x.detach())
        return super().forward(x)


class SinesOfSquares(Sines):
    """The same, and wrong in its values."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).square()


def due(times: int) -> Any:
    return lambda case: {
        ("forward", "aten::sin"): times,
        ("step", "aten::sin"): times,
        ("backward", "all_reduce"): 0,
    }


def run(engine: Engine, cls: type, times: int) -> CaseResult:
    return Runner(replace(check(cls), witness=due(times)), engine).run(TWICE)


def missed(found: CaseResult) -> set[Any]:
    assert {m.kind for m in found.mismatches} == {Kind.WITNESS}
    assert {m.rank for m in found.mismatches} == {0, 1}
    return {m.detail for m in found.mismatches}


@pytest.mark.parametrize("name", ["gloo", "threads"])
def test_what_runs_is_counted_in_each_phase_of_each_microbatch(
    name: str, request: pytest.FixtureRequest
) -> None:
    engine = request.getfixturevalue(name)
    assert run(engine, Sines, 1).verdict is Verdict.PASS
    assert missed(run(engine, Sines, 2)) == {
        PathNotTaken("aten::sin", Phase.FORWARD, 2, 4),
        PathNotTaken("aten::sin", Phase.STEP, 1, 2),
    }


def test_a_path_that_no_value_shows_is_named(gloo: Engine) -> None:
    runner = Runner(replace(check(RowLinear), witness=due(1)), gloo)
    found = runner.run(TWICE)
    assert PathNotTaken("aten::sin", Phase.FORWARD, 0, 2) in missed(found)
    assert examine_failure(runner, found).diagnosis.code == "path-not-taken"


def test_of_a_wrong_candidate_its_values_are_told(gloo: Engine) -> None:
    kinds = {m.kind for m in run(gloo, SinesOfSquares, 9).mismatches}
    assert Kind.OUTPUT in kinds and Kind.WITNESS not in kinds


def negated(x: Tensor) -> Tensor:
    return -x


class NegatedAgain:
    """Another operator in the first call than in those after it."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * -1 if self.calls == 1 else -x


NEGATED = Case(dims={"rows": 2, "width": 3}, mesh={"tp": 1})


def of_negated(fn: Any, phase: str) -> Check:
    """The check of a kernel that is to negate in this phase."""
    return kernel_check(
        fn,
        reference=negated,
        arguments={"x": Argument("rows", "width")},
        witness=lambda case: {(phase, "aten::neg"): 1},
        name="negated",
    )


def test_of_a_kernel_the_first_call_counts(gloo: Engine) -> None:
    for fn, found in ((negated, Verdict.PASS), (NegatedAgain(), Verdict.FAIL)):
        assert Runner(of_negated(fn, "backward"), gloo).run(NEGATED).verdict is found


@pytest.mark.parametrize(
    ("witness", "says"),
    [
        (lambda case: 3, "^witness.case. returned 3; give"),
        (lambda case: {"sin": 1}, "^witness.case. returned .'sin': 1.; give .*phase"),
        (lambda case: 1 // 0, "witness raised ZeroDivisionError"),
    ],
)
def test_what_is_no_witness_is_refused_in_one_line(gloo: Engine, witness: Any, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        Runner(replace(check(RowLinear), witness=witness), gloo).run(CASE)
    assert len(str(caught.value).splitlines()) == 1


def test_a_kernel_takes_no_step_in_which_something_could_run(gloo: Engine) -> None:
    with pytest.raises(InvalidArgument, match="takes no step"):
        Runner(of_negated(negated, "step"), gloo).run(NEGATED)
