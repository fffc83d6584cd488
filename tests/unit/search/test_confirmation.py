"""Which failures must show on fresh ranks before they are told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tpcheck.case import Case
from tpcheck.search.confirmation import Confirmation
from tpcheck.verdict import CaseResult, Verdict

FIRST, SMALL = (CaseResult(Case(seed=seed), "gloo") for seed in (1, 2))
RANKS = SMALL.case.world_size


def renewed(before: dict[int, int], monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[int]:
    """For which cases ranks were forked anew: `SMALL` fails on them, too.

    Args:
        before: seed of a case → how many had run on its ranks before.
    """
    asked: list[int] = []
    trials: Any = SimpleNamespace(
        real=None,
        before=lambda result: before[result.case.seed],
        runner=SimpleNamespace(renew=asked.append),
    )
    confirmation = Confirmation(trials, **options)
    monkeypatch.setattr(confirmation, "examined", lambda found: SimpleNamespace(again=Verdict.FAIL))
    assert confirmation.settled(SMALL, FIRST)[0] is SMALL
    return asked


def test_the_smallest_case_must_fail_on_fresh_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert renewed({1: 0, 2: 3}, monkeypatch) == [RANKS]
    assert renewed({1: 4, 2: 3}, monkeypatch) == [RANKS]
    assert renewed({1: 4, 2: 0}, monkeypatch) == []


def test_it_need_not_where_the_first_one_has_and_that_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert renewed({1: 0, 2: 3}, monkeypatch, fresh=False) == []
    assert renewed({1: 4, 2: 3}, monkeypatch, fresh=False) == [RANKS], "neither has"
