"""What an audit says: rows of entries and of parameters, and findings. Plain data, JSON out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

# The codes that an audit gives, the most telling first: an entry that matches nothing is the
# cause of the parameters that stay whole.
CODES = (
    "plan-entry-unmatched",
    "tied-weights-split",
    "wrong-placement",
    "parameter-not-sharded",
    "order-of-parallelisms",
)
_SHOWN = 3


@dataclass(frozen=True)
class Finding:
    """One fault of a plan.

    Args:
        code: one of `CODES`.
        message: a sentence with the names in it.
        names: the modules or parameters that it is about, full names.
        entry: the plan's key, where one is at fault.
        suggestions: names that the key could have meant, the likeliest first.
    """

    code: str
    message: str
    names: tuple[str, ...]
    entry: str | None = None
    suggestions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "names": list(self.names),
            "entry": self.entry,
            "suggestions": list(self.suggestions),
        }


@dataclass(frozen=True)
class Entry:
    """One entry of the plan: the modules (or parameters) that its key matched, of how many."""

    key: str
    style: str
    matched: tuple[str, ...]
    expected: int
    sharded: int  # parameters that it shards
    suggestions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "style": self.style,
            "matched": len(self.matched),
            "expected": self.expected,
            "sharded": self.sharded,
            "suggestions": list(self.suggestions),
        }


@dataclass(frozen=True)
class Parameter:
    """One parameter: where it lies, by which entry, or why it is whole.

    Args:
        placement: in DTensor's words, on the TP axis.
        reason: the entry and style that placed it, or why it stays whole.
        elements: of the full tensor.
        held: bytes on the rank that holds most of it.
        promised: bytes there if the plan did what it is meant to do.
    """

    name: str
    shape: tuple[int, ...]
    placement: str
    reason: str
    entry: str | None
    elements: int
    held: int
    promised: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": list(self.shape),
            "placement": self.placement,
            "reason": self.reason,
            "entry": self.entry,
            "bytes": self.held,
            "promised_bytes": self.promised,
        }


@dataclass
class Audit:
    """What came of a plan on a model.

    Args:
        tp: degree of the TP axis.
        live: whether placements were read from a parallelized model, or follow from the plan.
        whole_bytes: of all parameters, unsharded; a tied weight counts once.
        promised_bytes: a rank, if everything that is not declared whole is sharded.
        held_bytes: a rank (the one that holds most).
    """

    tp: int
    live: bool
    entries: list[Entry] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    whole_bytes: int = 0
    promised_bytes: int = 0
    held_bytes: int = 0

    @property
    def codes(self) -> list[str]:
        """The codes found, each once, the most telling first."""
        found = {finding.code for finding in self.findings}
        return [code for code in CODES if code in found]

    def to_dict(self) -> dict[str, Any]:
        return {
            "tp": self.tp,
            "live": self.live,
            "findings": [f.to_dict() for f in self.findings],
            "entries": [e.to_dict() for e in self.entries],
            "parameters": [p.to_dict() for p in self.parameters],
            "bytes": {
                "whole": self.whole_bytes,
                "promised": self.promised_bytes,
                "held": self.held_bytes,
            },
        }


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Each once, the most telling code first, else in the order found."""
    unique = list(dict.fromkeys(findings))
    return sorted(unique, key=lambda finding: CODES.index(finding.code))


def generic(name: str) -> str:
    """`layers.3.mlp` → `layers.*.mlp`."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def brief(names: Sequence[str]) -> str:
    """A few names in full, many as patterns with their number."""
    if len(names) <= _SHOWN:
        return ", ".join(names)
    counts: dict[str, list[str]] = {}
    for name in names:
        counts.setdefault(generic(name), []).append(name)
    parts = [
        members[0] if len(members) == 1 else f"{pattern} ({_numbers(members)})"
        for pattern, members in counts.items()
    ]
    more = f", and {len(parts) - 8} more" if len(parts) > 8 else ""
    return ", ".join(parts[:8]) + more


def _numbers(members: Sequence[str]) -> str:
    """Which members of a pattern: their numbers where few, else how many."""
    if len(members) > _SHOWN:
        return f"{len(members)} of them"
    return ", ".join(".".join(re.findall(r"\d+", name)) for name in members)
