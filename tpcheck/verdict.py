"""Verdicts and the evidence behind them: plain data, no torch.

`PASS < UNKNOWN < FAIL`, the worst wins. `report/` turns these into sentences, JSON and pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import total_ordering
from typing import TYPE_CHECKING, Any

from tpcheck.case import Case
from tpcheck.causes import Cause
from tpcheck.errors import TROUBLE, UNDECIDED
from tpcheck.event import Event
from tpcheck.evidence import Evidence, OfRank, ReplicasDiffer, Scene, Stuck
from tpcheck.evidence.judged import Tensors
from tpcheck.evidence.kinds import Kinds
from tpcheck.evidence.known import KnownAs
from tpcheck.evidence.left import LeftBehind
from tpcheck.evidence.pictures import Pictures
from tpcheck.placement import Entry
from tpcheck.process.aspects import Left
from tpcheck.tensors.names import InPass
from tpcheck.vocabulary import Code, Impasse, Kind, Rule

if TYPE_CHECKING:
    from tpcheck.tensors.readings import Reading


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
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: UNDECIDED}[self]


_ORDER = {Verdict.PASS: 0, Verdict.UNKNOWN: 1, Verdict.FAIL: 2}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of `verdicts`; of none at all, UNKNOWN: nothing was decided."""
    return max(verdicts, default=Verdict.UNKNOWN)


@dataclass(frozen=True)
class Mismatch:
    """One piece of evidence.

    Args:
        tensor: the tensor's name; `x@1` is `x` in the second microbatch, `x@step` after a step
            (`tensors.names.InPass`).
        kind: what it is evidence of.
        rank: the rank that saw it.
        index: where in that rank's local tensor, or None where no element is meant.
        expected, actual: the two values there (None where there are none).
        error, bound: what was measured and what was allowed, in the same unit.
        detail: what the numbers don't say; None only of one that was read from a file.
    """

    tensor: str
    kind: Kind
    rank: int
    index: tuple[int, ...] | None = None
    expected: float | None = None
    actual: float | None = None
    error: float | None = None
    bound: float | None = None
    detail: Evidence | None = None

    @property
    def name(self) -> InPass:
        """The tensor's name and the pass in which it was seen."""
        return InPass.parse(self.tensor)

    @property
    def of(self) -> Kind:
        """What is wrong; of replicas that differ, what they are replicas of."""
        return self.detail.of if isinstance(self.detail, ReplicasDiffer) else self.kind

    @property
    def computed(self) -> tuple[int, bool, bool, int, int]:
        """When a value was: what is computed earlier sorts first; gradients of parameters, which
        add up over the passes of a step, and what comes of them after all of these."""
        at, whole = self.name.at, self.of.is_of_parameter or self.of is Kind.GRAD_NORM
        return at.step, at.microbatch is None, whole, at.microbatch or 0, self.kind.order

    @property
    def has_step(self) -> bool:
        """Whether its name says the step of training in which it was seen."""
        return self.kind.is_value or self.kind is Kind.MASK

    @property
    def scene(self) -> Scene:
        """Where the rank was, of one that failed; an empty scene of other evidence."""
        return self.detail.scene if isinstance(self.detail, OfRank) else Scene()

    def seen_at(self, scene: Scene) -> Mismatch:
        """The same with another scene; only of a rank that failed."""
        assert isinstance(self.detail, OfRank), self.detail
        return replace(self, detail=replace(self.detail, scene=scene))

    @property
    def is_consequence(self) -> bool:
        """Whether the rank failed only because another one did."""
        return bool(self.scene.consequence)

    def same_as(self, other: Mismatch) -> bool:
        """Whether what was measured is equal to the last bit, NaN being equal to NaN."""
        return self._measured() == other._measured()

    def _measured(self) -> tuple[Any, ...]:
        numbers = (self.expected, self.actual, self.error, self.bound)
        return (self.tensor, self.kind, self.rank, self.index, *map(repr, numbers))


@dataclass(frozen=True)
class Diagnosis:
    """A named cause, with its evidence.

    Args:
        message: the cause's sentence; "" until `diagnosis.examine` writes it.
    """

    code: Code
    cause: Cause
    message: str = ""


@dataclass
class CaseResult:
    """What one case came to on one engine."""

    case: Case
    engine: str
    mismatches: list[Mismatch] = field(default_factory=list)
    unknown: str | None = None  # why nothing could be decided
    trace: list[list[Event]] = field(default_factory=list)  # [one of `ended`][collective]
    ended: list[int] = field(default_factory=list)  # the ranks that did, in order
    code: dict[str, str] = field(default_factory=dict)  # module → where it is written, if examined
    printed: Mapping[int, str] = field(default_factory=dict)  # rank → what its process printed
    usage: float = 0.0  # the largest error / bound seen among values that agree
    bytes: dict[str, tuple[int, int]] = field(default_factory=dict)  # on one rank: held, due
    saved: int = 0  # elements that autograd kept on one rank, where they were counted
    alarms: set[Rule] = field(default_factory=set)  # other rules that alarm, where asked for
    compiles: bool = False  # whether the candidate hands something to `torch.compile`
    configurations: tuple[str, ...] = ()  # of the autotuned kernel that has most
    looked_again: bool = False  # whether closer bounds were measured
    confirmed: bool = False  # whether it took the closest ones
    suspected: bool = False  # whether closer bounds, not measured, might clear it
    left: list[Left] = field(default_factory=list)  # state that it left changed on a rank
    saving: Case | None = None  # that of the ranks that were to save, where it went no further
    judged: Tensors = field(default_factory=dict)  # how much of each tensor was
    #: Tensors of parameters as ranks have them, where that is not as the layout says.
    placed: Mapping[tuple[str, str], Entry] = field(default_factory=dict)
    #: What its run took, as words: lines that kernels access, flags of launches, Python's branches.
    ways: set[str] = field(default_factory=set)
    undefined: set[str] = field(default_factory=set)  # lines, `kernel:line`, with undefined lanes
    readings: list[Mapping[str, Reading]] = field(default_factory=list)  # of masks, by line
    telling: dict[str, float] = field(default_factory=dict)  # bits of masks that are split, by line

    @property
    def counts(self) -> bool:
        """Whether it says anything of the candidate; a case in which nothing was judged counts as
        not run."""
        return bool(self.mismatches) or any(own.judged_in for own in self.judged.values())

    @property
    def causes(self) -> list[Mismatch]:
        """The evidence without what only followed from a failure of another rank."""
        return [m for m in self.mismatches if not m.is_consequence]

    @property
    def steps(self) -> int | None:
        """How many steps of training show the failure; None where it may take all."""
        wrong = self.causes
        if not all(mismatch.has_step for mismatch in wrong):
            return None
        return 1 + min((mismatch.name.at.step for mismatch in wrong), default=0)

    @property
    def timed_out(self) -> bool:
        """Whether the only evidence against the case is the time limit."""
        return bool(self.causes) and all(map(_too_long, self.causes))

    @property
    def verdict(self) -> Verdict:
        if self.mismatches:
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.unknown else Verdict.PASS


def _too_long(mismatch: Mismatch) -> bool:
    return isinstance(mismatch.detail, Stuck) and mismatch.detail.why is Impasse.TOO_LONG


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
    found_after: int = 0  # cases drawn up to the first failing one (0: one not drawn)
    trace: Mapping[int, list[Event]] = field(default_factory=dict)  # rank that ended → collectives
    printed: Mapping[int, str] = field(default_factory=dict)  # rank → what its process printed
    pictures: Pictures | None = None  # for pages
    known: KnownAs | None = None  # the known finding that it is, or stands beside


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
    reason: str | None = None  # why UNKNOWN, or why it could not go on after a FAIL
    more: bool = False  # whether more cases may settle that
    about: Case | None = None  # the case that could not be decided, if it is one
    usage: dict[str, float] = field(default_factory=dict)  # dtype → largest error / bound
    bytes: dict[str, tuple[int, int]] = field(default_factory=dict)  # on one rank: most held, due
    findings: list[FindingResult] = field(default_factory=list)
    judged: Tensors = field(default_factory=dict)  # over the cases that did not fail
    left: list[LeftBehind] = field(default_factory=list)
    trouble: bool = False  # whether the check itself can't run, or go on: `reason` says where
    fault: str | None = None  # of tpcheck's own that kept it from going on: its traceback
    address: str | None = None  # FILE::NAME, where it has one; FILE of one that does not import
    line: int | None = None  # of that file's, where it does not import
    namesake: bool = False  # whether another check of the run has the same name
    notes: list[str] = field(default_factory=list)  # what else is to be said, in a line each
    asked: int | None = None  # how many cases there were to be, where the time was up before
    smaller: int = 0  # cases beside `examples`, that made a failure smaller
    kinds: Kinds | None = None  # what kinds of case ran, where that was asked for

    @property
    def only_known(self) -> bool:
        """Whether every case failed as a known finding says: nothing was seen to be right."""
        return 0 < self.examples + self.smaller <= sum(found.failed for found in self.findings)


def exit_code(results: Iterable[CheckResult], *, undecided: bool = False) -> int:
    """What a run of checks ends with: 1 where one FAILs, else `TROUBLE` where one can't run, else 3
    where one is UNKNOWN, or the run as a whole is `undecided`, else 0."""
    found = list(results)
    verdict = worst([*(result.verdict for result in found), *[Verdict.UNKNOWN] * undecided])
    troubled = any(result.trouble for result in found)
    return TROUBLE if troubled and verdict is not Verdict.FAIL else verdict.exit_code
