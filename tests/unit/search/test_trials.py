"""What is known of the cases of a check as they run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tpcheck import Case
from tpcheck.errors import InvalidArgument
from tpcheck.search.trials import SPARED, Trials
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Kind

RIGHT, RAISES = Case(seed=1), Case(seed=2)


def trials() -> Trials:
    """On ranks that are not there."""

    def run(case: Case, **_: object) -> CaseResult:
        if case == RAISES:
            raise InvalidArgument("reference raised ValueError")
        return CaseResult(case, "gloo")

    return Trials(_runner(run), [])


def _runner(run: Callable[..., CaseResult], *, branches: bool = False) -> Any:
    engine = SimpleNamespace(ran=0, starts=0)
    return SimpleNamespace(engine=engine, branches=branches, again=True, run=run)


def test_a_case_that_can_not_run_is_known() -> None:
    of = trials()
    of.run(RIGHT)
    assert of.at is None
    with pytest.raises(InvalidArgument):
        of.run(RAISES)
    assert of.at == RAISES and of.result(RAISES) is None


@pytest.mark.parametrize("sparing", [None, 0, 1, SPARED + 2])
def test_a_kernel_is_called_again_in_all_cases_or_in_one_of_so_many(sparing: int | None) -> None:
    again: list[bool] = []

    def run(case: Case, **_: object) -> CaseResult:
        again.append(runner.again)
        return CaseResult(case, "gloo")

    of = Trials(runner := _runner(run), [], sparing=sparing)
    for seed in range(3 * SPARED):
        of.run(Case(seed=seed))
        assert runner.again, "whoever asks next asks for all of it"
    first = sparing or 0
    assert again == [sparing is None or (first + n) % SPARED == 0 for n in range(3 * SPARED)]


@pytest.mark.parametrize("branches", [False, True])
def test_what_fails_where_it_was_spared_is_what_it_comes_to_where_it_is_not(branches: bool) -> None:
    looks: list[tuple[bool, bool]] = []

    def run(case: Case, **_: object) -> CaseResult:
        looks.append((runner.again, runner.branches))
        wrong = [Mismatch("output", Kind.OUTPUT, 0), Mismatch("x", Kind.DISCIPLINE, 0)]
        return CaseResult(case, "gloo", wrong[: 1 + runner.again])

    of = Trials(runner := _runner(run, branches=branches), [], sparing=1)
    assert len(of.run(Case()).mismatches) == 2
    assert looks == [(False, branches), (True, False)]
    assert runner.branches is branches
