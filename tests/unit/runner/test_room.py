"""A whole tensor that is only supposed around its parts is one where all ranks have room for it."""

from __future__ import annotations

import pytest

from tpcheck.protocol.messages import RankReport
from tpcheck.runner.room import kept_whole


def of(rank: int, **room: tuple[int, int]) -> RankReport:
    report = RankReport(rank)
    report.entries = {"w": {}, "v": {}} if rank < 3 else {"v": {}}
    report.room = room
    return report


@pytest.mark.parametrize(
    ("reports", "found"),
    [
        ([of(0, w=(16, 8)), of(1, w=(16, 8)), of(3)], [("w", 0), ("w", 1)]),
        ([of(0, w=(16, 8)), of(1)], []),
        ([of(0), of(1), of(2)], []),
        ([of(0, w=(16, 8)), of(1, w=(16, 8)), of(2, w=(0, 0))], [("w", 0), ("w", 1)]),
        ([of(0, w=(16, 8)), of(1, w=(0, 0), v=(9, 3))], [("w", 0)]),
    ],
)
def test_all_that_have_a_part_decide(
    reports: list[RankReport], found: list[tuple[str, int]]
) -> None:
    mismatches = kept_whole(reports)
    assert [(m.tensor, m.rank) for m in mismatches] == found
    assert {(m.detail.storage, m.detail.expected) for m in mismatches} <= {(16, 8)}
