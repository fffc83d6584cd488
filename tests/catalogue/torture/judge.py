"""What is wrong with a round: the one place that decides it. No torch, no ranks."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Seen:
    """One check of a round.

    Args:
        role: `fault` or `follow-up`.
        expected: the verdicts that it may have.
    """

    name: str
    role: str
    expected: tuple[str, ...]
    verdict: str
    reason: str = ""
    left: tuple[str, ...] = ()

    @property
    def wrong(self) -> str | None:
        """`wrong PASS`, `wrong FAIL`, `wrong UNKNOWN`, or None."""
        return None if self.verdict in self.expected else f"wrong {self.verdict}"


@dataclass
class Row:
    """What a round came to: a line of the state file.

    Args:
        label: of the round.
        exceptions: what came out of the search, which nothing should.
        processes, files: that were there when nothing should be.
        driver: the process, and what it held after the round: bytes, descriptors.
    """

    engine: str
    number: int
    kind: str
    label: str
    seen: list[Seen] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    seconds: float = 0.0
    driver: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> int:
        """How many of its checks are `wrong PASS` and so on."""
        return sum(one.wrong == what for one in self.seen)

    @property
    def wrong(self) -> bool:
        """Whether anything of it is not as it must be."""
        return bool(
            self.exceptions or self.processes or self.files or any(one.wrong for one in self.seen)
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Row:
        seen = [
            Seen(**{**one, "expected": tuple(one["expected"]), "left": tuple(one["left"])})
            for one in data["seen"]
        ]
        return cls(**{**data, "seen": seen})


#: What a driver's figures may grow by between the 100th fault and the last.
GROWTH = 0.05
FROM = 100


def grown(rows: Iterable[Row]) -> list[str]:
    """Figures of a driver that grew from its 100th fault to its last; of each engine the driver
    that lived longest."""
    drivers: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row.driver:
            drivers.setdefault((row.engine, row.driver["pid"]), []).append(row)
    found = []
    for (engine, _), own in drivers.items():
        if len(own) < 2 * FROM:
            continue
        first, last = own[FROM - 1].driver, own[-1].driver
        for name in set(first) - {"pid"}:
            if last[name] > first[name] * (1 + GROWTH):
                found.append(f"{engine}: {name} grew from {first[name]} to {last[name]}")
    return found


def unnamed(rows: Iterable[Row], leaving: Container[str]) -> list[str]:
    """Kinds, of those that leave state behind, of which no report named any: for information."""
    named: dict[str, bool] = {}
    for row in rows:
        for one in row.seen:
            if row.kind in leaving and one.role == "fault" and one.verdict == "PASS":
                named[row.kind] = named.get(row.kind, False) or bool(one.left)
    return sorted(kind for kind, ever in named.items() if not ever)


COLUMNS = ("wrong PASS", "wrong FAIL", "wrong UNKNOWN")


def table(rows: list[Row], lines: dict[str, str]) -> str:
    """One line per kind, the sums last.

    Args:
        lines: kind → what it does.
    """
    heads = ["kind", "faults", "follow-ups", *COLUMNS, "exceptions", "processes", "files", "what"]
    body = [
        _line(kind, [r for r in rows if r.kind == kind]) for kind in sorted({r.kind for r in rows})
    ]
    body = [[*cells, lines.get(cells[0], "")] for cells in body]
    whole = [*_line(f"{len(body)} kinds", rows), ""]
    cells = [heads, *body, whole]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)


def _line(name: str, rows: list[Row]) -> list[str]:
    follow_ups = sum(one.role != "fault" for row in rows for one in row.seen)
    wrong = [sum(row.count(what) for row in rows) for what in COLUMNS]
    others = [
        sum(len(getattr(row, of)) for row in rows) for of in ("exceptions", "processes", "files")
    ]
    return [name, *map(str, [len(rows), follow_ups, *wrong, *others])]


def troubles(rows: Iterable[Row]) -> list[str]:
    """Everything that is wrong, a line each."""
    found = []
    for row in rows:
        where = f"{row.engine} {row.number} [{row.label}]"
        for one in row.seen:
            if one.wrong:
                found.append(f"{where}: {one.role} {one.name}: {one.wrong} ({one.reason[:200]})")
        for what in ("exceptions", "processes", "files"):
            found += [f"{where}: {what}: {text[:300]}" for text in getattr(row, what)]
    return found
