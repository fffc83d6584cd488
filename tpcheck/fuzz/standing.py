"""How a check stands in a run of `fuzz`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.figures.hunted import Row
from tpcheck.fuzz.known import Known
from tpcheck.fuzz.picking import Arm
from tpcheck.fuzz.shelf import Parent, Shelf
from tpcheck.fuzz.turn import How, Subject
from tpcheck.report import reasons
from tpcheck.search.corpus import Corpus
from tpcheck.search.excluded import excluded, not_replayed
from tpcheck.search.options import Options
from tpcheck.search.outcome import degrees_of, listed

#: Turns of one check that may be lost before it is set aside. With one, a machine short of memory
#: costs checks that are right; with many, a check that ends its workers costs an hour.
LOST = 3


@dataclass(frozen=True)
class Saved:
    """A case that is to run once more.

    Args:
        id: in the corpus; empty where it is not there, since it did not fail.
        told: signatures of failures that are not to be passed over in it, though they are known:
            its file is gone, and is to be written again.
    """

    id: str
    case: Case
    told: frozenset[str] = frozenset()


@dataclass
class Standing:
    """A check in this run.

    Args:
        known: what is known of it, with what earlier runs saw.
        degrees: at which it is to have cases.
        again: saved cases that are to run once more.
        arms: how → what came of it.
        parents: degree → cases that showed something rare.
        begun: whether cases were drawn in this run: what earlier ones got to, perhaps by other
            code, counts no longer.
        given, lost: turns of this run.
        before: cases of earlier runs; `running`: those of turns that have not ended.
        exhausted: whether all of its cases have run.
        troubled: why it can't run, and by which `fault` of tpcheck's own.
        lately: why its last turn decided nothing, where no other did, or was lost.
        left: what its cases left changed of a process, in a line each.
    """

    subject: Subject
    known: Known
    degrees: Set[int] = frozenset()
    again: deque[Saved] = field(default_factory=deque)
    arms: dict[How, Arm] = field(default_factory=lambda: {How.LOOK: Arm(), How.NEAR: Arm()})
    parents: dict[int, list[Parent]] = field(default_factory=dict)
    begun: bool = False
    given: int = 0
    lost: int = 0
    before: int = 0
    running: int = 0
    exhausted: bool = False
    troubled: str | None = None
    fault: str | None = None
    lately: str | None = None
    left: list[str] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether it may have another turn."""
        return not self.exhausted and self.troubled is None and self.lost < LOST

    @property
    def waits(self) -> bool:
        """Whether it has had no turn yet, in any run."""
        return self.open and not self.given and not self.known.turns

    def begins(self, how: How) -> bool:
        """Whether a turn is the first of this run that draws cases."""
        anew = how in self.arms and not self.begun
        self.begun |= how in self.arms
        return anew

    @property
    def undecided(self) -> str | None:
        """Why it is UNKNOWN, by all of its turns, if it is."""
        known = self.known
        if known.findings or self.lost >= LOST:
            return self.lately
        if known.open:
            return known.open[0].reason
        if not known.turns:
            return self.lately or (reasons.NONE_DRAWN if known.cases else None)
        return self.lately or known.reach.missing(self.degrees)

    def left_out(self) -> list[str]:
        """What is to be said of listed cases that were not run, and of degrees without a case: a
        line each."""
        cases, impossible = listed(self.subject.check), self.known.reach.impossible
        lines = [reasons.list_not_whole(len(cases))] if self.open and cases else []
        return lines + ([reasons.no_case(sorted(impossible))] if impossible else [])

    @property
    def row(self) -> Row:
        """For people and machines."""
        known = self.known
        return Row(
            check=self.subject.name,
            title=self.subject.title,
            turns=known.turns,
            cases=known.cases + self.running,
            seconds=round(known.seconds, 3),
            ran=known.cases + self.running - self.before,
            features=len(known.words),
            lone=known.lone,
            worst=known.worst,
            findings=len(known.findings),
            undecided=self.undecided,
            troubled=self.troubled,
            fault=self.fault,
            left=tuple(self.left),
        )


def standing(
    subject: Subject, known: Known, options: Options, shelf: Shelf, *, ranks: int
) -> Standing:
    """How a check stands before its first turn in this run. Findings whose case it excludes by now
    are none of it any more; their files stay in the corpus. What was open is run again first."""
    corpus = options.corpus or Corpus()
    check = subject.check
    known.findings = [
        finding
        for finding in known.findings
        if excluded(check, Case.from_dict(finding.case)) is None
    ]
    saved = list(_saved(subject, known, corpus))
    again = deque(replayed(check, saved, corpus, ranks=ranks))
    out = Standing(subject, known, degrees_of(check, options), again, before=known.cases)
    known.open = [o for o in known.open if o.case is None or excluded(check, o.case) is None]
    cases = [one.case for one in known.open if one.case is not None]
    again += [Saved("", case) for case in cases if not_replayed(check, case, ranks) is None]
    # a list of cases has none near
    for degree in sorted(out.degrees) if callable(check.spec.cases) else ():
        if parents := shelf.parents(subject.name, degree):
            out.parents[degree] = parents
    return out


def replayed(
    check: Check, saved: Iterable[Saved], corpus: Corpus, *, ranks: int
) -> Iterator[Saved]:
    """Those that run again; why others don't is told."""
    for one in saved:
        if (why := not_replayed(check, one.case, ranks)) is None:
            yield one
        else:
            corpus.set_aside(one.id, why)


def _saved(subject: Subject, known: Known, corpus: Corpus) -> Iterator[Saved]:
    """The cases of a check that are in the corpus, by this verb or another, and those of findings
    that no longer are."""
    entries = corpus.of(subject.check.title, subject.check.address())
    there = {entry.id for entry in entries}
    yield from (Saved(entry.id, entry.case) for entry in entries)
    for finding in known.findings:
        if finding.id not in there:
            told = frozenset(finding.signatures)
            yield Saved(finding.id, Case.from_dict(finding.case), told)
