"""Results as JSON-ready data, and the measured part of a mismatch back: every field of reports and
corpus files is written here.

Non-finite numbers become the strings 'nan', 'inf', '-inf'.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from tpcheck.errors import shown
from tpcheck.evidence import (
    Absent,
    Elsewhere,
    Evidence,
    MessagesLost,
    Misheld,
    OfRank,
    OverBudget,
    OverSaved,
    PathNotTaken,
    PlanFault,
    Refused,
    Stuck,
    TracesDiffer,
    WrongDtype,
)
from tpcheck.report import drawn, judged, kinds, known_as, left
from tpcheck.report.diagnoses.as_json import evidence_of
from tpcheck.report.evidence import place, reason
from tpcheck.verdict import CheckResult, Counterexample, Diagnosis, FindingResult, Mismatch
from tpcheck.vocabulary import Fault, Kind


def check(result: CheckResult) -> dict[str, Any]:
    """One object of a report's `checks`."""
    found = result.counterexample
    return {
        "name": result.name,
        "verdict": result.verdict.value,
        "engine": result.engine,
        "examples": result.examples,
        "asked": result.asked,
        "made_smaller_in": result.smaller,
        "seconds": round(result.seconds, 3),
        "dtypes": result.dtypes,
        "tp_degrees": result.tp_degrees,
        "reason": result.reason,
        "bound_usage": {dtype: round(used, 4) for dtype, used in result.usage.items()},
        "bytes": {what: {"held": held, "due": due} for what, (held, due) in result.bytes.items()},
        "judged": judged.as_json(result.judged),
        "state_left_behind": [left.as_json(one) for one in result.left],
        "kinds": kinds.as_json(result.kinds),
        "counterexample": None if found is None else counterexample(found),
        "known_findings": [finding(row) for row in result.findings],
        "trouble": result.trouble,
        "fault": result.fault,
        "address": result.address,
        "notes": result.notes,
    }


def counterexample(found: Counterexample) -> dict[str, Any]:
    return {
        "id": found.id,
        "case": found.case.to_dict(),
        "mismatches": [mismatch(m) for m in found.mismatches],
        "diagnosis": diagnosis(found.diagnosis),
        "first_divergence": found.first_divergence,
        "reproduce": found.reproduce,
        "engine": found.engine,
        "found_after": found.found_after,
        "known_as": None if found.known is None else known_as.as_json(found.known),
        "printed": {str(rank): text for rank, text in found.printed.items()},
        **plain(drawn.as_json(found.pictures)),
    }


def diagnosis(found: Diagnosis) -> dict[str, Any]:
    return {
        "code": found.code,
        "message": found.message,
        "evidence": plain(evidence_of(found.cause)),
    }


def finding(row: FindingResult) -> dict[str, Any]:
    """A known finding and what became of it."""
    return {
        "package": row.package,
        "releases": row.releases,
        "installed": row.installed,
        "code": row.code,
        "page": row.page,
        "state": row.state,
        "cases_failed": row.failed,
        "cases_passed": row.passed,
        "other_diagnosis": row.otherwise,
        "counterexample": counterexample(row.counterexample) if row.counterexample else None,
    }


def mismatch(found: Mismatch) -> dict[str, Any]:
    return {
        "tensor": found.tensor,
        "kind": found.kind.value,
        "rank": found.rank,
        "index": plain(found.index),
        "expected": plain(found.expected),
        "actual": plain(found.actual),
        "error": plain(found.error),
        "bound": plain(found.bound),
        "detail": detail(found),
    }


def mismatch_from(data: Any) -> Mismatch:
    """The inverse of `mismatch`, but for `detail`: what was measured is what a replay compares.

    Raises:
        ValueError, KeyError, TypeError: it is not what `mismatch` writes.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"a mismatch is a JSON object, not {type(data).__name__}")
    unknown = sorted(set(data) - {f.name for f in fields(Mismatch)})
    if unknown:
        raise ValueError(f"a mismatch has no field {shown(unknown[0])}")
    index = data.get("index")
    measured = [data.get(name) for name in ("expected", "actual", "error", "bound")]
    tensor, rank = data["tensor"], data["rank"]
    if not isinstance(tensor, str):
        raise ValueError(f"a mismatch of the tensor {shown(tensor)}")
    if not _is_int(rank):
        raise ValueError(f"a mismatch on rank {shown(rank)}")
    if index is not None and not (isinstance(index, list) and all(map(_is_int, index))):
        raise ValueError(f"a mismatch at {shown(index)}, which is not a list of numbers")
    expected, actual, error, bound = map(_number, measured)
    where = None if index is None else tuple(index)
    return Mismatch(tensor, _kind(data["kind"]), rank, where, expected, actual, error, bound)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value: object) -> Kind:
    if not isinstance(value, str) or value not in tuple(Kind):
        raise ValueError(f"a mismatch of the kind {shown(value)}")
    return Kind(value)


def _number(value: object) -> float | None:
    """A number as `plain` writes it."""
    if value is None or isinstance(value, float):
        return value
    if _is_int(value) or value in ("nan", "inf", "-inf"):
        with contextlib.suppress(OverflowError):
            return float(value)  # type: ignore[arg-type]
    raise ValueError(f"a mismatch with {shown(value)} for a number")


def detail(found: Mismatch) -> dict[str, Any]:
    """What the numbers don't say; sentences under `reason`."""
    evidence = found.detail
    if evidence is None:
        return {}
    out = plain(_fields(evidence))
    if (said := reason(found)) is not None:
        out["reason"] = said
    return out | plain(_known(evidence.scene)) if isinstance(evidence, OfRank) else out


_NOT_SHOWN = ("scene", "seconds", "held", "peer", "parted", "waits_in", "finished")


def _fields(evidence: Evidence) -> dict[str, Any]:
    """The evidence's own fields, by the words of the report."""
    match evidence:
        case Absent():
            return _known(evidence)
        case Elsewhere():
            return {"elsewhere": place(evidence)}
        case Misheld():
            return _known(evidence, leave_out=("elsewhere", "built"))
        case PlanFault():
            return {"fault": Fault.PLAN, **_known(evidence)}
        case Stuck():
            return _known(evidence, leave_out=_NOT_SHOWN)
        case TracesDiffer():
            return {"group": evidence.group, "ranks": evidence.ranks}
        case OverBudget():
            return {**_known(evidence), "unit": "elements per rank"}
        case Refused() | MessagesLost() | OverSaved():
            return {}  # the sentence says all of it
        case PathNotTaken():
            return {"witness": evidence.name, "phase": evidence.phase}
        case WrongDtype():
            return {"dtype": evidence.dtype, "expected_dtype": evidence.expected_dtype}
    return _known(
        evidence, leave_out=("scene", "text", "status", "lost", "communicating", "starved")
    )


def _known(evidence: Any, *, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """Field → value, where there is one."""
    values = {f.name: getattr(evidence, f.name) for f in fields(evidence)}
    return {n: v for n, v in values.items() if v is not None and n not in leave_out}


def plain(value: Any) -> Any:
    """JSON-ready: mappings with text for keys, lists, non-finite numbers as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if is_dataclass(value) and not isinstance(value, type):
        return plain(_known(value))
    return value
