"""An audit as text (entries, parameters by kind, bytes per rank, findings) and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tpcheck.errors import counted
from tpcheck.figures.order_causes import OrderCause
from tpcheck.figures.plan import Audit, EntryRow, Finding, ParameterRow
from tpcheck.figures.plan_reasons import Declared, LeftOut, Reason, Unnamed
from tpcheck.report import orders, plan_faults
from tpcheck.report.placements import reason
from tpcheck.tensors.names import generic


def sentence(finding: Finding) -> str:
    """What a finding says: the fault and the names that it is about."""
    if isinstance(finding.cause, OrderCause):
        return orders.sentence(finding.cause, finding.names)
    return plan_faults.said(finding.cause, finding)


# ---- for people


def text(audit: Audit) -> str:
    """The whole audit, findings last."""
    state = "a parallelized model" if audit.live else "a plan, without ranks"
    lines = [f"audit of {state}, tp={audit.tp}", ""]
    lines += _table(
        ["entry", "style", "matched", "parameters sharded"], [_entry(e) for e in audit.entries]
    )
    lines.append("")
    lines += _table(["parameter", "number", "shape", "placement", "why"], _kinds(audit.parameters))
    lines += ["", _bytes(audit), ""]
    for finding in audit.findings:
        lines.append(f"{finding.code}  {finding.message}")
    lines.append(verdict(audit))
    return "\n".join(lines)


def verdict(audit: Audit) -> str:
    """`FAIL  3 findings: plan-entry-unmatched, parameter-not-sharded`."""
    if not audit.findings:
        return "PASS  no finding"
    return f"FAIL  {counted(len(audit.findings), 'finding')}: {', '.join(audit.codes)}"


def _entry(entry: EntryRow) -> list[str]:
    matched = f"{len(entry.matched)} of {entry.expected}"
    if entry.suggestions:
        matched += f" ({entry.suggestions[0]}?)"
    return [entry.key or "(the model)", entry.style, matched, str(entry.sharded)]


def _kinds(parameters: Sequence[ParameterRow]) -> list[list[str]]:
    """Parameters of one pattern, shape, placement and reason as one row."""
    rows: dict[tuple[str, ...], int] = {}
    for row in parameters:
        key = (generic(row.name), str(list(row.shape)), row.placement, reason(_kind(row.why)))
        rows[key] = rows.get(key, 0) + 1
    return [[name, str(count), *rest] for (name, *rest), count in rows.items()]


def _kind(why: Reason) -> Reason:
    """The same with patterns for names: siblings that are left out for one reason differ in the
    names that it points at."""
    if isinstance(why, LeftOut):
        return LeftOut(tuple(map(generic, why.siblings)))
    if isinstance(why, Unnamed):
        return Unnamed(why.meant and generic(why.meant))
    return why if isinstance(why, Declared) else replace(why, key=generic(why.key))


def _bytes(audit: Audit) -> str:
    held, promised, whole = (
        _size(n) for n in (audit.held_bytes, audit.promised_bytes, audit.whole_bytes)
    )
    share = audit.held_bytes / audit.whole_bytes if audit.whole_bytes else 1.0
    return (
        f"parameters per rank: {held} held, {promised} promised, {whole} unsharded "
        f"({share:.3f} of it; 1/tp is {1 / audit.tp:.3f})"
    )


def _size(number: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number} B"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, *rows]
    ]


# ---- for machines


def to_dict(audit: Audit) -> dict[str, Any]:
    """What `tpcheck audit --json` writes."""
    return {
        "tp": audit.tp,
        "live": audit.live,
        "findings": [_finding_dict(finding) for finding in audit.findings],
        "entries": [_entry_dict(row) for row in audit.entries],
        "parameters": [_parameter_dict(row) for row in audit.parameters],
        "bytes": {
            "whole": audit.whole_bytes,
            "promised": audit.promised_bytes,
            "held": audit.held_bytes,
        },
    }


def _finding_dict(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "message": finding.message,
        "names": list(finding.names),
        "entry": finding.entry,
        "suggestions": list(finding.suggestions),
    }


def _entry_dict(row: EntryRow) -> dict[str, Any]:
    return {
        "key": row.key,
        "style": row.style,
        "matched": len(row.matched),
        "expected": row.expected,
        "sharded": row.sharded,
        "suggestions": list(row.suggestions),
    }


def _parameter_dict(row: ParameterRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "shape": list(row.shape),
        "placement": row.placement,
        "reason": row.reason,
        "entry": row.entry,
        "bytes": row.held,
        "promised_bytes": row.promised,
    }
