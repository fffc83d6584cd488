"""What each page shows of its report, in the order in which it is read."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tpcheck.case import Case
from tpcheck.report.page import heat, timeline, words

#: Mismatches of a counterexample that are listed. The first is what happened; more than these are
#: the same in further tensors, and the page says how many.
SHOWN = 40

#: Modules whose code is listed beside that of those in question: of some blocks. More would be
#: longer than the rest of the page.
MODULES = 100

_WORST_FIRST = ("FAIL", "UNKNOWN", "PASS")


def of_verify(report: dict[str, Any]) -> dict[str, Any]:
    """The page of `tpcheck verify`."""
    checks = [_check(number, check) for number, check in enumerate(report["checks"], 1)]
    checks.sort(key=lambda one: _order(one["verdict"]))
    return {
        "title": "tpcheck verify",
        "report": report,
        "verdict": report["verdict"],
        "environment": [(k, words.value(v)) for k, v in report["environment"].items()],
        "checks": checks,
        "counts": _counts(check["verdict"] for check in checks),
        "skipped": report["skipped"] or [],
        "cases": sum(check["examples"] for check in checks),
    }


def _check(number: int, check: dict[str, Any]) -> dict[str, Any]:
    found = check["counterexample"]
    findings = [
        {**one, "example": _counterexample(f"known-{number}-{place}", one["counterexample"])}
        for place, one in enumerate(check["known_findings"] or [], 1)
    ]
    only_known = 0 < check["examples"] <= sum(one["cases_failed"] for one in findings)
    usage = list((check["bound_usage"] or {}).values())
    compared = check["verdict"] == "PASS" or any(map(float, usage))  # else no value agreed
    return {
        **check,
        "slug": f"check-{number}",
        "found": _counterexample(f"check-{number}", found),
        "known_findings": findings,
        "label": "KNOWN" if only_known and check["verdict"] == "PASS" else check["verdict"],
        "usage": max(usage, key=lambda used: float(used), default=None) if compared else None,
        "left": [[(k, words.value(v)) for k, v in row.items() if v is not None]
                 for row in check["state_left_behind"] or []],
    }  # fmt: skip


def _counterexample(slug: str, found: dict[str, Any] | None) -> dict[str, Any] | None:
    if found is None:
        return None
    case = Case.from_dict({k: v for k, v in found["case"].items() if v is not None})
    mismatches = found["mismatches"]
    rows = [
        {
            **one,
            "times": words.times(one["error"], one["bound"]),
            "reason": words.value(one["detail"].get("reason") or ""),
            "facts": words.facts(one["detail"]),
        }
        for one in mismatches[:SHOWN]
    ]
    evidence = found["diagnosis"]["evidence"]
    failed, written = words.ranks(mismatches), _written(found)
    lines = timeline.lines(found["collectives"], failed)
    return {
        **found,
        "slug": slug,
        "described": words.value(case.describe()),
        "mesh": " ".join(f"{axis}={size}" for axis, size in case.mesh.items()),
        "rows": rows,
        "more": _counts(one["kind"] for one in mismatches[SHOWN:]),
        "ranks": failed,
        "maps": [heat.drawn(one) for one in found["error_maps"] or []],
        "modules": _modules(found["boundaries"]),
        "line": timeline.drawn(lines, {int(r["rank"]) for r in failed if r["rank"].isdecimal()}),
        "written": [(name or "the outermost", text) for name, text in written],
        "unwritten": [one for one in (found["code"] or {}).items() if one not in written][:MODULES],
        "sources": [_source(one) for one in found["source"] or []],
        "unpictured": found.get("unpictured", False),
        "evidence": [(k.replace("_", " "), words.value(v)) for k, v in evidence.items()],
        "tensor": mismatches[0]["tensor"] if mismatches else "?",
    }


def _written(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The code of the check's callables, of the outermost module, of the one where it is seen first
    and the one that gave the terms of a sum which nobody took, and of those that the diagnosis
    names."""
    code, crossed = found["code"] or {}, found["boundaries"]
    names = {name for name in code if not name or name.endswith("()")}
    if crossed is not None and crossed["first"] is not None:
        places = (crossed["first"], _start_of_sum(crossed))
        names |= {row["module"] for n, row in enumerate(crossed["rows"]) if n in places}
    told = f"{found['diagnosis']['message']} {found['first_divergence'] or ''}"
    for word in re.findall(r"\w[\w.]*\w", told):
        around = (name for name in code if name and f"{word}.".startswith(f"{name}."))
        names |= {max(around, key=len, default="")}
    return [(name, code[name]) for name in code if name in names]


def _source(found: dict[str, Any]) -> dict[str, Any]:
    """A part of a file, with the numbers of its lines."""
    first, marks, named = found["first"], found["marks"], found["named"] or []
    rows = [
        {"number": number, "text": words.value(text), "mark": _mark(number, marks, named)}
        for number, text in enumerate(found["lines"], first)
    ]
    return {"file": found["file"], "first": first, "last": first + len(rows) - 1, "rows": rows}


def _mark(number: int, marks: Sequence[int], named: Sequence[int]) -> str:
    """What a line says of the failure; nothing of most."""
    return "named" if number in named else "entered" if number in marks else ""


def _start_of_sum(crossed: dict[str, Any]) -> int | None:
    """Where the terms of a sum come from that are still terms just before the first row that
    differs."""
    rows, first = crossed["rows"], crossed["first"]
    if first is None or not 0 < first < len(rows):
        return None
    start: int = first
    while start and (rows[start - 1]["fate"], rows[start - 1]["phase"]) == (
        "sum",
        rows[first]["phase"],
    ):
        start -= 1
    return start if start < first else None


def _modules(crossed: dict[str, Any] | None) -> dict[str, Any] | None:
    """The boundaries with the length of a bar each, on a scale of the digits of error / bound."""
    if crossed is None:
        return None
    rows = [
        {
            **row,
            "first": number == crossed["first"],
            "gives": number == _start_of_sum(crossed),
            "name": row["module"] or "(outermost)",
            "bar": _bar(row["error"]),
        }
        for number, row in enumerate(crossed["rows"])
    ]
    return {"rows": rows, "left_out": crossed["left_out"], "first": crossed["first"]}


def _bar(error: Any) -> float:
    """Pixels: six per digit, full for what is not finite."""
    if error is None:
        return 0.0
    number = float(error)
    if not math.isfinite(number):
        return 120.0
    return round(min(120.0, 6 * max(0.5, math.log10(max(number, 1.0)))), 1)


def of_fuzz(report: dict[str, Any]) -> dict[str, Any]:
    """The page of a campaign of `tpcheck fuzz`."""
    findings = [
        {**one, "slug": f"finding-{n}", "found": _counterexample(f"finding-{n}",
                                                               one["counterexample"])}
        for n, one in enumerate(report["findings"], 1)
    ]  # fmt: skip
    return {
        "title": "tpcheck fuzz",
        "report": report,
        "verdict": report["verdict"],
        "checks": sorted(report["checks"], key=lambda row: (-row["findings"], row["title"])),
        "findings": findings,
    }


def of_mutants(report: dict[str, Any]) -> dict[str, Any]:
    """The kill matrix of `tpcheck mutants`. Its JSON has no verdict, and does not say whether the
    run was interrupted: only that something survived is sure."""
    fates = [{**row, "fate": _fate(row)} for row in report["rows"]]
    survived = any(row["fate"] == "survived" for row in fates)
    return {
        "title": "tpcheck mutants",
        "report": report,
        "verdict": "FAIL" if survived else None,
        "rows": fates,
        "counts": _counts(row["fate"] for row in fates),
        "kinds": sorted({kind for row in fates for kind in row["kinds"]}),
        "against": report["against"],
    }


def _fate(row: Mapping[str, Any]) -> str:
    if row["killed"]:
        return "killed" if row["named"] else "misnamed"
    return "survived" if row["trouble"] is None else "could not run"


def of_alarms(report: dict[str, Any]) -> dict[str, Any]:
    """The page of `tpcheck calibrate alarms`; of its verdict as of `mutants`."""
    tables = (("dtype", "by_dtype"), ("tp", "by_degree"), ("check", "by_check"))
    return {
        "title": "tpcheck calibrate alarms",
        "report": report,
        "verdict": "FAIL" if report["alarms"] else None,
        "tables": [(name, report[field]) for name, field in tables],
        "troubled": report["troubled"] or {},
    }


def of_sensitivity(report: dict[str, Any]) -> dict[str, Any]:
    """The page of `tpcheck calibrate sensitivity`."""
    return {
        "title": "tpcheck calibrate sensitivity",
        "report": report,
        "verdict": None,
        "rows": report["thresholds"],
        "troubled": report["troubled"] or {},
    }


def _order(verdict: str) -> int:
    return _WORST_FIRST.index(verdict) if verdict in _WORST_FIRST else 0


def _counts(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words))
