"""A cause as JSON: what a report has under `evidence`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tpcheck.causes import Cause, OnlyInDtype, OnlyInMode, OnlySavedAt, WhileSaving
from tpcheck.causes.altered import Regathered
from tpcheck.causes.evident import OnOtherRanks, OtherDtype, OutputsNamedOtherwise
from tpcheck.causes.reruns import WrongOnOneRank
from tpcheck.causes.structure import (
    CollectiveInDtype,
    DiagnosisFailed,
    GivenUp,
    RankDied,
    SendsTooMuch,
)
from tpcheck.report.diagnoses import sentence
from tpcheck.report.diagnoses.altered import gathered
from tpcheck.report.evidence import ending, place


def evidence_of(cause: Cause) -> Mapping[str, Any]:
    """Field → value, where there is one, and what reports have said since before causes had
    fields. What a cause has `seen` is among the mismatches, and is not repeated."""
    if isinstance(cause, WhileSaving):
        return {**evidence_of(cause.cause), "saved_at": cause.saved_at}
    if isinstance(cause, OnlySavedAt):
        return {**evidence_of(cause.cause), "only_saved_at": cause.only_saved_at}
    if isinstance(cause, OnlyInMode):
        return {**evidence_of(cause.cause), "only_in_mode": cause.only_in_mode}
    if isinstance(cause, OnlyInDtype):
        return {**evidence_of(cause.cause), "only_in": cause.only_in}
    return {**_known(cause, leave_out=("seen", "lost")), **_in_words(cause)}


def _known(data: Any, *, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    values = {f.name: getattr(data, f.name) for f in fields(data) if f.name not in leave_out}
    return {name: value for name, value in values.items() if value is not None}


def _in_words(cause: Cause) -> dict[str, Any]:
    match cause:
        case RankDied():
            return {"how": ending(cause.status, cause.lost)}
        case GivenUp():
            waiting = {rank: last or "nothing" for rank, last in cause.waiting_in.items()}
            return {"waiting_in": waiting}
        case SendsTooMuch():
            return {"unit": "elements per rank"}
        case CollectiveInDtype() | OutputsNamedOtherwise():
            return {"reason": sentence(cause)}
        case OnOtherRanks():
            return {"elsewhere": place(cause.seen)}
        case OtherDtype():
            return _known(cause.seen)
        case Regathered():
            return {cause.side.value: cause.name, "gathered": gathered(cause.gathered)}
        case WrongOnOneRank():
            return {"refuted": cause.refuted}
        case DiagnosisFailed():
            return {"failed": True}
    return {}
