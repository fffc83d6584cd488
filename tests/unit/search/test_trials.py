"""What is known of the cases of a check as they run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tpcheck import Case
from tpcheck.errors import InvalidArgument
from tpcheck.search.trials import Trials
from tpcheck.verdict import CaseResult

RIGHT, RAISES = Case(seed=1), Case(seed=2)


def trials() -> Trials:
    """On ranks that are not there."""

    def run(case: Case, **_: object) -> CaseResult:
        if case == RAISES:
            raise InvalidArgument("reference raised ValueError")
        return CaseResult(case, "gloo")

    runner: Any = SimpleNamespace(engine=SimpleNamespace(ran=0, starts=0), branches=False, run=run)
    return Trials(runner, [])


def test_a_case_that_can_not_run_is_known() -> None:
    of = trials()
    of.run(RIGHT)
    assert of.at is None
    with pytest.raises(InvalidArgument):
        of.run(RAISES)
    assert of.at == RAISES and of.result(RAISES) is None
