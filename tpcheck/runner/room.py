"""Parameters of which each rank has a part where the whole one could be around it."""

from __future__ import annotations

from collections.abc import Sequence

from tpcheck.evidence import Misheld
from tpcheck.protocol.messages import RankReport
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Fault, Kind


def kept_whole(reports: Sequence[RankReport]) -> list[Mismatch]:
    """Those of which all ranks have such a part: they are views of whole ones. On one rank it may
    be padding, or what nobody names."""
    found = []
    for name in dict.fromkeys(name for report in reports for name in report.room):
        holders = [report for report in reports if name in report.entries]
        if not all(name in report.room for report in holders):
            continue
        for report in holders:
            kept, own = report.room[name]
            if own:
                detail = Misheld(Fault.STORAGE, storage=kept, expected=own)
                found.append(Mismatch(name, Kind.SHARDING, report.rank, detail=detail))
    return found
