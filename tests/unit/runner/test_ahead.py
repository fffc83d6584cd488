"""The next case is posed ahead: once, and with whatever goes wrong kept for its turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.candidates import CASE
from tpcheck.case import Case
from tpcheck.errors import CaseError
from tpcheck.oracle.pose import Posed
from tpcheck.process.aspects import Left
from tpcheck.runner.ahead import Ahead

OTHER = replace(CASE, seed=CASE.seed + 1)
CHANGED = Left("torch.get_default_dtype", restored=True)


class Posing:
    """Poses by name, and says what it was asked for."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[Case] = []
        self.error = error
        self.ahead = Ahead(self.pose, self.restore)

    def pose(self, case: Case) -> Posed:
        self.asked.append(case)
        if self.error is not None:
            raise self.error
        return cast(Any, f"posed {case.seed}")

    def restore(self) -> list[Left]:
        return [CHANGED]


def test_a_case_that_was_prepared_is_posed_once() -> None:
    posing = Posing()
    posing.ahead.prepare(CASE)
    posing.ahead.prepare(CASE)
    assert posing.ahead.take(CASE) == (f"posed {CASE.seed}", [CHANGED])
    assert posing.asked == [CASE]


def test_what_was_prepared_is_given_once() -> None:
    posing = Posing()
    posing.ahead.prepare(CASE)
    posing.ahead.take(CASE)
    posing.ahead.take(CASE)
    assert posing.asked == [CASE, CASE]


def test_another_case_than_the_one_prepared_is_posed_in_its_turn() -> None:
    posing = Posing()
    posing.ahead.prepare(CASE)
    assert posing.ahead.take(OTHER) == (f"posed {OTHER.seed}", [CHANGED])
    assert posing.ahead.take(CASE) == (f"posed {CASE.seed}", [CHANGED])
    assert posing.asked == [CASE, OTHER]


def test_what_goes_wrong_is_raised_in_its_turn() -> None:
    posing = Posing(CaseError("not this one"))
    posing.ahead.prepare(CASE)
    with pytest.raises(CaseError, match="not this one"):
        posing.ahead.take(CASE)


def test_an_interrupt_is_not_kept() -> None:
    posing = Posing(cast(Any, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        posing.ahead.prepare(CASE)
    posing.error = None
    assert posing.ahead.take(CASE)[0] == f"posed {CASE.seed}"
