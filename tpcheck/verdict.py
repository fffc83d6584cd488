"""Verdicts and the evidence behind them: plain data, JSON in and out, no torch.

`PASS < UNKNOWN < FAIL`, the worst wins. Only `report/` turns these into sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import total_ordering
from typing import Any

from tpcheck.case import Case

KINDS = (
    "output",
    "input_grad",
    "param_grad",
    "param",
    "loss",
    "grad_norm",
    "replica",
    "sharding",
    "collective",
    "communication_bytes",
    "saved_bytes",
    "exception",
    "hang",
    "crash",
)


@total_ordering
class Verdict(Enum):
    """The three verdicts, ordered; `exit_code` is what the command line returns."""

    PASS = "PASS"
    UNKNOWN = "UNKNOWN"
    FAIL = "FAIL"

    def __lt__(self, other: Verdict) -> bool:
        return _ORDER[self] < _ORDER[other]

    @property
    def exit_code(self) -> int:
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 3}[self]


_ORDER = {Verdict.PASS: 0, Verdict.UNKNOWN: 1, Verdict.FAIL: 2}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of `verdicts`; of none at all, UNKNOWN: nothing was decided."""
    return max(verdicts, default=Verdict.UNKNOWN)


@dataclass(frozen=True)
class Mismatch:
    """One piece of evidence.

    Args:
        tensor: the tensor's name; `x@1` is `x` in the second microbatch, `x@step` after a step.
        kind: one of `KINDS`.
        rank: the rank that saw it.
        index: where in that rank's local tensor, or None where no element is meant.
        expected, actual: the two values there (None where there are none).
        error, bound: what was measured and what was allowed, in the same unit.
        detail: what the numbers don't say: counts, shapes, a traceback, the last collectives.
    """

    tensor: str
    kind: str
    rank: int
    index: tuple[int, ...] | None = None
    expected: float | None = None
    actual: float | None = None
    error: float | None = None
    bound: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; non-finite numbers become the strings 'nan', 'inf', '-inf'."""
        return {name: _jsonable(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Mismatch:
        data = dict(data)
        index = data.get("index")
        data["index"] = None if index is None else tuple(index)
        for name in ("expected", "actual", "error", "bound"):
            if isinstance(data.get(name), str):
                data[name] = float(data[name])
        found = cls(**data)
        if found.kind not in KINDS or not isinstance(found.rank, int):
            raise ValueError(f"a mismatch of kind {found.kind!r} on rank {found.rank!r}")
        return found

    def same_as(self, other: Mismatch) -> bool:
        """Equal to the last bit, NaN being equal to NaN; free-form detail is not compared."""
        mine, theirs = self.to_dict(), other.to_dict()
        return all(mine[k] == theirs[k] for k in mine if k != "detail")


@dataclass(frozen=True)
class Diagnosis:
    """A named cause: `code` from the closed list in `diagnose.CODES`, with its evidence."""

    code: str
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "evidence": _jsonable(self.evidence),
        }


@dataclass
class CaseResult:
    """What one case came to on one engine."""

    case: Case
    engine: str
    mismatches: list[Mismatch] = field(default_factory=list)
    unknown: str | None = None  # why nothing could be decided
    trace: list[list[dict[str, Any]]] = field(default_factory=list)  # [rank][event]
    usage: float = 0.0  # the largest error / bound seen among values that agree
    alarms: set[str] = field(default_factory=set)  # other rules that alarm, where asked for
    uncompiled: bool = False  # whether what the candidate compiles ran eagerly

    @property
    def verdict(self) -> Verdict:
        if self.mismatches:
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.unknown else Verdict.PASS


@dataclass
class Counterexample:
    """A failing case, as small as it got, with all that is known of it."""

    id: str
    case: Case
    mismatches: list[Mismatch]
    diagnosis: Diagnosis
    engine: str
    first_divergence: str | None = None
    reproduce: str = ""
    shrunk_from: int = 0  # how many failing cases were tried on the way
    found_after: int = 0  # cases drawn up to the first failing one (0: one not drawn)

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "case": self.case.to_dict(),
            "mismatches": [m.to_dict() for m in self.mismatches],
            "diagnosis": self.diagnosis.to_dict(),
            "first_divergence": self.first_divergence,
            "reproduce": self.reproduce,
            "engine": self.engine,
            "found_after": self.found_after,
        }


@dataclass
class FindingResult:
    """What became of a known finding (`tpcheck.KnownFinding`) in one check's run."""

    package: str
    releases: str
    installed: str | None
    code: str
    page: str
    applies: bool  # declared for the installed release
    failed: int = 0  # cases that failed as declared
    passed: int = 0  # cases that should have failed
    otherwise: str | None = None  # the diagnosis of one that failed in another way
    counterexample: Counterexample | None = None

    @property
    def state(self) -> str:
        """`known`, or how the declaration does not hold."""
        if not self.applies:
            return "other-release"
        if self.passed:
            return "does-not-show"
        if self.otherwise:
            return "other-diagnosis"
        return "known" if self.failed else "not-run"

    def to_dict(self) -> dict[str, Any]:
        return {
            "package": self.package,
            "releases": self.releases,
            "installed": self.installed,
            "code": self.code,
            "page": self.page,
            "state": self.state,
            "cases_failed": self.failed,
            "cases_passed": self.passed,
            "other_diagnosis": self.otherwise,
            "counterexample": self.counterexample.to_dict() if self.counterexample else None,
        }


@dataclass
class CheckResult:
    """What one check came to: the row of the table, the object of the JSON report."""

    name: str
    verdict: Verdict
    engine: str
    examples: int = 0
    seconds: float = 0.0
    dtypes: list[str] = field(default_factory=list)
    tp_degrees: list[int] = field(default_factory=list)
    counterexample: Counterexample | None = None
    reason: str | None = None  # why UNKNOWN
    usage: dict[str, float] = field(default_factory=dict)  # dtype → largest error / bound
    findings: list[FindingResult] = field(default_factory=list)

    @property
    def only_known(self) -> bool:
        """Whether every case failed as a known finding says: nothing was seen to be right."""
        return 0 < self.examples <= sum(finding.failed for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "verdict": self.verdict.value,
            "engine": self.engine,
            "examples": self.examples,
            "seconds": round(self.seconds, 3),
            "dtypes": self.dtypes,
            "tp_degrees": self.tp_degrees,
            "reason": self.reason,
            "bound_usage": {k: round(v, 4) for k, v in self.usage.items()},
            "counterexample": self.counterexample.to_dict() if self.counterexample else None,
            "known_findings": [finding.to_dict() for finding in self.findings],
        }


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(v) for v in value]
    return value
