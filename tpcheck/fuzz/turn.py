"""A turn: one check, some cases, in a worker. It is a search like that of `verify`, so that what
fails is confirmed and named as there; what it shows goes back to who picks the next turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.figures.hunted import Finding
from tpcheck.fuzz.features import features, is_way, score
from tpcheck.fuzz.near import Again, Around, Near
from tpcheck.fuzz.novel import Looking, Met
from tpcheck.fuzz.place import place, signature
from tpcheck.fuzz.shelf import Parent, Shelf
from tpcheck.report import as_json, left
from tpcheck.report.text import page
from tpcheck.report.visible import in_json
from tpcheck.search.attempt import attempt
from tpcheck.search.corpus import Corpus
from tpcheck.search.hunt import Hunt
from tpcheck.search.options import SHRINK_CASES, Options
from tpcheck.search.outcome import reach_of, unsettled
from tpcheck.search.reach import Open, Reach
from tpcheck.search.search import Search
from tpcheck.search.session import Session
from tpcheck.search.trials import Onlooker
from tpcheck.verdict import CaseResult, CheckResult, Verdict
from tpcheck.vocabulary import Kind

#: Cases with one way, at most, of which some are kept to look near to. With as few as are kept, all
#: of them are mostly children of one, which share what the way does not need; with more, they are
#: compared in vain.
SENT = 60

#: Of so many turns near others, one climbs from the best ones on, by hundreds of draws.
CLIMBS = 4


class How(Enum):
    """What a turn does."""

    LOOK = auto()  # draws cases as `verify` does
    NEAR = auto()  # draws near those that showed something new
    AGAIN = auto()  # runs a saved case once more
    SHRINK = auto()  # makes a finding's case smaller


@dataclass(frozen=True)
class Turn:
    """What a worker is to do.

    Args:
        check: its number.
        cases: how many to draw, at most.
        seed: of the draws.
        told: the signatures of failures that are known.
        seen: the words of what was seen of the check until now → in how many cases.
        degree, parents: of `NEAR`.
        saved: of `AGAIN` and `SHRINK`, and the id in the corpus.
        sparing: as of `Options`.
    """

    check: int
    how: How
    cases: int
    seed: int
    told: frozenset[str] = frozenset()
    seen: Mapping[str, int] = field(default_factory=dict, hash=False)
    degree: int = 1
    parents: tuple[Parent, ...] = ()
    saved: Case | None = None
    id: str = ""
    sparing: int | None = None


@dataclass
class Came:
    """What a turn came to.

    Args:
        shown: of each case that ran, its words.
        worth: degree, and the cases at it that showed what few have.
        worst: the largest error over its bound among values that agree.
        seconds: all of it.
        told: the signatures of known failures that were met again.
        finding: what failed otherwise, confirmed.
        saved: whether the case of `AGAIN` failed, whatever is known; None where that is open.
        stale: why the case of `AGAIN` is none of the check's any more, if it is.
        reach: what its cases got to.
        reason: why it decided nothing.
        open: what no other case settles.
        trouble: whether the check can't run: `reason` says why; by a `fault` of tpcheck's own,
            its traceback.
        left: what cases left changed of a process, in a line each.
    """

    shown: list[frozenset[str]] = field(default_factory=list)
    worth: list[tuple[int, Parent]] = field(default_factory=list)
    worst: float = 0.0
    seconds: float = 0.0
    told: set[str] = field(default_factory=set)
    finding: Finding | None = None
    saved: bool | None = None
    stale: str | None = None
    reach: Reach = field(default_factory=Reach)
    reason: str | None = None
    open: list[Open] = field(default_factory=list)
    trouble: bool = False
    fault: str | None = None
    left: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Subject:
    """A check, and what it is called in the state: its address, or its name.

    Args:
        namesake: whether another check of the hunt has its name.
    """

    name: str
    check: Check
    namesake: bool = False

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.check.title} ({self.name})" if self.namesake else self.check.title


class Turns:
    """Takes turns, in one worker. It remembers which cases ran, and what they scored.

    Args:
        options: what all turns have in common.
        choices: the folder of the shelf.
    """

    def __init__(
        self, subjects: Sequence[Subject], options: Options, corpus: Corpus, choices: Path
    ) -> None:
        self.subjects, self.options = subjects, options
        self.corpus, self.choices = corpus, choices
        self._scores: dict[int, dict[int, float]] = {}
        self._met: dict[int, Met] = {}
        self._made: dict[int, Counter[str]] = {}  # children of cases, by what these showed

    def take(self, session: Session, turn: Turn, tell: Callable[[Any], None]) -> Came:
        """What a turn comes to; `tell` is given the number of each case that ran."""
        subject = self.subjects[turn.check]
        shelf = Shelf(self.choices)
        ran: list[CaseResult] = []
        hunts: list[Hunt] = []

        def note(result: CaseResult) -> None:
            ran.append(result)
            tell(len(ran))

        onlooker = Onlooker(note, lambda result: signature(result) in turn.told)
        hunter = partial(self._hunt, turn, subject, shelf, hunts)
        searching = partial(Search, hunter=hunter, onlooker=onlooker)
        result = attempt(subject.check, session, self._options(turn), searching=searching)
        came = _came(turn, subject, ran, result, hunts)
        self._scores.setdefault(turn.check, {}).update({hash(r.case): score(r) for r in ran})
        self._met.setdefault(turn.check, Met()).names |= _names(ran)
        return came

    def _options(self, turn: Turn) -> Options:
        alone = self.subjects[turn.check].check.spec.degrees == (1,)  # one rank, of the engine's
        return Options(
            examples=turn.cases,
            seed=turn.seed,
            degrees=self.options.degrees,
            dtypes=self.options.dtypes,
            corpus=self.corpus,
            shrink_cases=SHRINK_CASES if turn.how is How.SHRINK else 0,
            few_ranks=alone,
            replay=False,
            branches=turn.how in (How.LOOK, How.NEAR),
            sparing=turn.sparing,
        )

    def _hunt(
        self, turn: Turn, subject: Subject, shelf: Shelf, hunts: list[Hunt], *of_hunt: Any
    ) -> Hunt:
        """The hunt of a turn. The choices of a case that fails are kept beside it."""
        *others, save = of_hunt

        def keep(result: CaseResult) -> None:
            save(result)
            if (drawn := hunts[-1].choices(result.case)) is not None:
                shelf.note_failing(subject.name, result.case, drawn)

        hunts.append(self._kind(turn, subject, shelf)(*others, keep))
        return hunts[-1]

    def _kind(self, turn: Turn, subject: Subject, shelf: Shelf) -> Callable[..., Hunt]:
        scores = self._scores.setdefault(turn.check, {})
        if turn.saved is not None:
            return partial(Again, turn.saved, shelf.of_failing(subject.name, turn.saved))
        if turn.how is How.NEAR:
            made, climbs = self._made.setdefault(turn.check, Counter()), not turn.seed % CLIMBS
            return partial(Near, Around(turn.degree, turn.parents, turn.seen, scores, made, climbs))
        met = self._met.setdefault(turn.check, Met())
        return partial(Looking, met, lambda case: hash(case) in scores)


def _names(ran: Sequence[CaseResult]) -> set[str]:
    """The tensors of a kernel that have a memory format: its inputs, and outputs' gradients."""
    judged = {key for result in ran for key in result.judged}
    return {name for kind, name in judged if kind.is_output or kind is Kind.INPUT_GRAD}


def _came(
    turn: Turn, subject: Subject, ran: Sequence[CaseResult], result: CheckResult, hunts: list[Hunt]
) -> Came:
    came = Came(seconds=result.seconds, left=left.lines(result.left))
    for case in ran:
        words = features(case)
        came.shown.append(words)
        came.worst = max(came.worst, case.usage)
        drawn = hunts[-1].choices(case.case) if hunts else None
        if drawn and case.verdict is not Verdict.FAIL:
            parent = Parent(drawn, frozenset(filter(is_way, words)))
            if parent.often(turn.seen) < SENT:
                came.worth.append((case.case.tp, parent))
    failed = [case for case in ran if case.verdict is Verdict.FAIL]
    came.told = {signature(case) for case in failed} & turn.told
    came.finding = _finding(turn, subject, ran, result)
    of_saved = [case for case in ran if case.case == turn.saved and not case.unknown]
    came.saved = any(case.verdict is Verdict.FAIL for case in of_saved) if of_saved else None
    came.stale = next((hunt.stale for hunt in hunts if isinstance(hunt, Again)), None)
    came.fault = result.fault
    came.trouble = (result.trouble or result.fault is not None) and came.finding is None
    if hunts:
        known = hunts[-1].trials.ledger.explains
        right = [case for case in ran if case.verdict is not Verdict.FAIL or known(case)]
        came.reach = reach_of(hunts[-1], [case for case in right if case.counts], result.judged)
    came.open = unsettled(ran)
    if came.trouble and turn.how in (How.LOOK, How.NEAR):
        at = hunts[-1].trials.at if hunts else None
        came.open.append(Open(result.reason or "", case=at))
    if came.trouble or (ran and result.verdict is Verdict.UNKNOWN):
        came.reason = result.reason
        if not (came.trouble or result.more) and result.reason is not None:
            came.open.append(Open(result.reason, case=result.about))
    return came


def _finding(
    turn: Turn, subject: Subject, ran: Sequence[CaseResult], result: CheckResult
) -> Finding | None:
    found = result.counterexample
    if found is None:
        return None
    result.namesake, result.address = subject.namesake, subject.name
    case = CaseResult(found.case, found.engine, found.mismatches)
    seen = [r for r in ran if r.case == found.case and r.verdict is Verdict.FAIL]
    return Finding(
        check=subject.name,
        title=subject.title,
        code=found.diagnosis.code.value,
        place=place(case),
        id=found.id,
        case=found.case.to_dict(),
        signatures=tuple(dict.fromkeys(map(signature, [*seen, case]))),
        found_after=found.found_after,
        shrunk=turn.how is How.SHRINK,
        page=page(result),
        counterexample=in_json(as_json.counterexample(found)),
    )
