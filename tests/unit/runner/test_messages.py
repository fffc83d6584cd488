"""Messages that only one of two ranks knows of."""

from __future__ import annotations

import pytest

from tpcheck.event import Event
from tpcheck.protocol.messages import RankReport
from tpcheck.runner.messages import lost_messages
from tpcheck.vocabulary import Phase

ALL = (0, 1, 2)


def report(rank: int, *each: tuple[str, int | None]) -> RankReport:
    events = [
        Event(op, None, ALL, "float32", (2,), 2, 8, Phase.FORWARD, "", peer=p) for op, p in each
    ]
    return RankReport(rank, events=events)


@pytest.mark.parametrize(
    ("to_0", "received", "lost"),
    [
        (1, [("recv", 1)], []),
        (1, [("recv", None)], []),
        (2, [("recv", None), ("recv", 1)], []),
        (2, [("recv", None)], [(1, 0, 2, 0)]),
        (0, [("recv", 1)], [(1, 0, 0, 1)]),
        (1, [], [(1, 0, 1, 0)]),
        (1, [("recv", 2)], [(1, 0, 1, 0), (2, 0, 0, 1)]),
    ],
)
def test_a_receive_from_any_rank_is_of_any_message(
    to_0: int, received: list[tuple[str, int | None]], lost: list[tuple[int, int, int, int]]
) -> None:
    found = lost_messages([report(0, *received), report(1, *[("send", 0)] * to_0), report(2)])
    told = [m.detail for m in found]
    assert [(d.source, d.target, d.sent, d.received) for d in told] == lost  # type: ignore[union-attr]
    assert [m.rank for m in found] == [target for _, target, _, _ in lost]
