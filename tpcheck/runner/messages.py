"""Messages from one rank to another: those that only one of them knows of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tpcheck.event import POINT_TO_POINT
from tpcheck.evidence import MessagesLost
from tpcheck.protocol.messages import RankReport
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind


def lost_messages(reports: Sequence[RankReport]) -> list[Mismatch]:
    """Those that were sent and not received, or expected and not sent. A receive from any rank may
    be of any message to its own that no other is for."""
    sent: Counter[tuple[int, int]] = Counter()  # (from, to)
    received: Counter[tuple[int, int]] = Counter()
    from_any: Counter[int] = Counter()
    for report in reports:
        for event in (event for event in report.events if event.op in POINT_TO_POINT):
            if event.peer is None:
                from_any[report.rank] += 1
            elif event.op == "send":
                sent[report.rank, event.peer] += 1
            else:
                received[event.peer, report.rank] += 1
    left = sent - received
    to: Counter[int] = Counter()
    for (_, target), count in left.items():
        to[target] += count
    unmet = {*(received - sent), *(ends for ends in left if to[ends[1]] > from_any[ends[1]])}
    return [
        Mismatch(
            "messages",
            Kind.COLLECTIVE,
            ends[1],
            detail=MessagesLost(*ends, sent[ends], received[ends]),
        )
        for ends in sorted(unmet)
    ]
