"""The kill matrix as data: what became of each mutant."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from tpcheck.vocabulary import Code


@dataclass(frozen=True)
class Row:
    """One mutant's fate.

    Args:
        kinds: of the evidence that killed it.
        examples: cases drawn up to the one that killed it, or all of them.
        case: that one, in a line.
        diagnosis: the code that was given, or nothing.
        expected: the codes of which it should be one.
        message: the diagnosis in words.
        trouble: why it can't run, where nothing killed it.
    """

    mutant: str
    killed: bool
    kinds: tuple[str, ...]
    examples: int
    seconds: float
    case: str
    diagnosis: str
    expected: tuple[str, ...]
    message: str = ""
    trouble: str | None = None

    @property
    def named(self) -> bool:
        """Whether the diagnosis is one of those expected."""
        return self.diagnosis in self.expected

    @property
    def misnamed(self) -> bool:
        """Whether a definite diagnosis is a wrong one."""
        return self.killed and not self.named and self.diagnosis != Code.UNCLASSIFIED

    def to_dict(self) -> dict[str, Any]:
        return {
            "mutant": self.mutant,
            "killed": self.killed,
            "kinds": list(self.kinds),
            "examples": self.examples,
            "seconds": round(self.seconds, 3),
            "case": self.case,
            "diagnosis": self.diagnosis,
            "expected": list(self.expected),
            "named": self.named,
            "trouble": self.trouble,
        }


@dataclass
class Matrix:
    """All rows, and how long it took to fill them."""

    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0

    def ordered(self) -> list[Row]:
        """Survivors and misnamed ones first."""
        return sorted(self.rows, key=lambda r: (r.killed, not r.misnamed, r.named, r.mutant))

    def survivors(self) -> list[Row]:
        """Those that ran and that nothing killed."""
        return [row for row in self.rows if not row.killed and row.trouble is None]

    def troubled(self) -> list[Row]:
        """Those that can't run, of which nothing is known."""
        return [row for row in self.rows if not row.killed and row.trouble is not None]

    def to_dict(self) -> dict[str, Any]:
        killed = [row for row in self.rows if row.killed]
        return {
            "mutants": len(self.rows),
            "killed": len(killed),
            "named": sum(row.named for row in killed),
            "misnamed": sum(row.misnamed for row in killed),
            "median_examples": statistics.median([r.examples for r in killed]) if killed else None,
            "seconds": round(self.seconds, 1),
            "rows": [row.to_dict() for row in self.ordered()],
        }
