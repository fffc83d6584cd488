"""What is said of a rank that was given up."""

from __future__ import annotations

import pytest

from tpcheck.evidence import Stuck
from tpcheck.report.evidence import said
from tpcheck.vocabulary import Impasse

LATE = "the case took longer than 5 s"


@pytest.mark.parametrize(
    ("absent", "waits_in", "words"),
    [
        ((), None, f"is in no collective, and {LATE}"),
        ((), "barrier", LATE),
        ((2,), "barrier", f"waits for rank 2, which has not come to this collective, and {LATE}"),
        ((1, 3), "x", f"waits for ranks 1,3, which have not come to this collective, and {LATE}"),
    ],
)
def test_at_the_time_limit_each_rank_says_for_whom_it_waits(
    absent: tuple[int, ...], waits_in: str | None, words: str
) -> None:
    assert said(Stuck(Impasse.TOO_LONG, absent, waits_in, seconds=5.0)) == words


def test_a_rank_that_has_finished_does_not_wait_for_another() -> None:
    assert said(Stuck(Impasse.EVERY_RANK_WAITS)) == "every rank waits for another"
    one, two = (Stuck(Impasse.EVERY_RANK_WAITS, finished=ranks) for ranks in ((2,), (0, 3)))
    assert said(one) == "every rank but 2, which has finished, waits for another"
    assert said(two) == "every rank but 0,3, which have finished, waits for another"
