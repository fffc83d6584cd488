"""Names of modules and parameters, as few of them as a person reads."""

from __future__ import annotations

from collections.abc import Sequence

from tpcheck.tensors.names import generic

#: Names that are shown in full. More make a sentence too long to read; fewer hide the names of
#: common faults (q, k and v of one layer).
IN_FULL = 3
#: Patterns that are shown of many names; what is left out is counted.
PATTERNS = 8


def brief(names: Sequence[str]) -> str:
    """A few names in full, many as patterns with their number."""
    if len(names) <= IN_FULL:
        return ", ".join(names)
    counts: dict[str, list[str]] = {}
    for name in names:
        counts.setdefault(generic(name), []).append(name)
    parts = [
        members[0] if len(members) == 1 else f"{pattern} ({_numbers(members)})"
        for pattern, members in counts.items()
    ]
    more = f", and {len(parts) - PATTERNS} more" if len(parts) > PATTERNS else ""
    return ", ".join(parts[:PATTERNS]) + more


def _numbers(members: Sequence[str]) -> str:
    """Which members of a pattern: their numbers where few, else how many."""
    if len(members) > IN_FULL:
        return f"{len(members)} of them"
    parts = (name.split(".") for name in members)
    return ", ".join(".".join(part for part in of if part.isdigit()) for of in parts)
