"""An audit for people: entries, parameters by kind, bytes a rank, findings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tpcheck.plan.findings import Audit, Entry, Parameter, generic


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
    number = len(audit.findings)
    return f"FAIL  {number} finding{'s' * (number > 1)}: {', '.join(audit.codes)}"


def _entry(entry: Entry) -> list[str]:
    matched = f"{len(entry.matched)} of {entry.expected}"
    if entry.suggestions:
        matched += f" ({entry.suggestions[0]}?)"
    return [entry.key or "(the model)", entry.style, matched, str(entry.sharded)]


def _kinds(parameters: Sequence[Parameter]) -> list[list[str]]:
    """Parameters of one pattern, shape and placement as one row."""
    rows: dict[tuple[str, ...], int] = {}
    for row in parameters:
        shape = str(list(row.shape))
        # siblings that are left out for the same reason differ in the names they point at
        why = re.sub(r"\.\d+\.", ".*.", row.reason)
        key = (generic(row.name), shape, row.placement, why)
        rows[key] = rows.get(key, 0) + 1
    return [[name, str(count), *rest] for (name, *rest), count in rows.items()]


def _bytes(audit: Audit) -> str:
    held, promised, whole = (
        _size(n) for n in (audit.held_bytes, audit.promised_bytes, audit.whole_bytes)
    )
    share = audit.held_bytes / audit.whole_bytes if audit.whole_bytes else 1.0
    return (
        f"parameters a rank: {held} held, {promised} promised, {whole} unsharded "
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
