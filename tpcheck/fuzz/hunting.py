"""The driver of `fuzz`: hands turns to workers, and notes what they come to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tpcheck.figures.hunted import Finding, Hunted, Row
from tpcheck.fuzz.giving import Giving
from tpcheck.fuzz.known import Known
from tpcheck.fuzz.shelf import Shelf
from tpcheck.fuzz.standing import LOST, Saved, Standing, replayed, standing
from tpcheck.fuzz.state import State
from tpcheck.fuzz.turn import Came, How, Subject, Turn
from tpcheck.report import reasons
from tpcheck.search.addresses import file_of
from tpcheck.search.corpus import Corpus
from tpcheck.search.excluded import orphans
from tpcheck.search.options import Options
from tpcheck.search.reach import Open
from tpcheck.workers.crew import Crew
from tpcheck.workers.jobs import Watch, take

#: Time limits of a case without a word of a worker, after which it is taken to hang: a failure is
#: examined in some ten runs, none of which is told of.
SILENT = 12

#: Seconds until it is asked again what other machines have found. With fewer, a database far away
#: is asked more often than it has news; with more, machines look for the same fault side by side.
NEWS = 60.0

#: Seconds, at most, until the time, silent workers and the view are looked at again.
TICK = 0.5


@dataclass(frozen=True)
class Listener:
    """Who tells of a run as it goes.

    Args:
        found: is told of a finding, and again where it has been made smaller.
        gone: of one that no longer fails.
        said: of a check: its name, and what is to be said of it.
        moment: is called often, with what the run has come to.
    """

    found: Callable[[Finding], None] = lambda _: None
    gone: Callable[[Finding], None] = lambda _: None
    said: Callable[[str, str], None] = lambda *_: None
    moment: Callable[[Hunted], None] = lambda _: None


class Hunting:
    """One run.

    Args:
        subjects: the checks.
        options: what all turns have in common.
        ranks: how many a worker has.
        time_limit: seconds that a case may take.
        aside: files that do not import, and why.
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        options: Options,
        state: State,
        *,
        ranks: int,
        time_limit: float,
        listener: Listener,
        aside: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.options, self.state, self.listener = options, state, listener
        self.corpus, self.shelf = options.corpus or Corpus(), Shelf(state.choices)
        self.corpus.sweep()
        for subject in subjects if self.corpus.sharing else ():
            self.corpus.pull(subject.check.title, subject.check.address())
        self.checks = [
            standing(subject, state.of(subject.name), options, self.shelf, ranks=ranks)
            for subject in subjects
        ]
        for file in sorted({file for subject in subjects if (file := file_of(subject.check))}):
            for line in orphans(self.corpus, file):
                self.listener.said("the corpus", line)
        self._complain("the corpus")
        self._aside = [Row(file, file, troubled=reason) for file, reason in aside.items()]
        self.reason: str | None = None  # why the run is not complete
        self._ranks, self._asked = ranks, time.monotonic()
        self._silence = SILENT * time_limit
        self._begun = time.monotonic()
        self._ran: Counter[Turn] = Counter()  # cases of turns that are being taken

    def run(self, crew: Crew, *, seconds: float | None = None, turns: int | None = None) -> None:
        """Until the time is up, so many turns were given, or no check is left. Turns that are being
        taken then are finished."""
        until = None if seconds is None else self._begun + seconds
        giving = Giving(self.checks, self.options.seed, until=until, turns=turns)
        watch = Watch(self._told, self._moment, TICK, self._silence)
        take(crew, _Turns(self, giving), "checks", watch)
        for one in self.checks:
            for line in one.left_out():
                self.listener.said(one.subject.title, line)

    def _moment(self) -> None:
        if self.corpus.sharing and time.monotonic() - self._asked > NEWS:
            self._ask()
        self.listener.moment(self.so_far())

    def _ask(self) -> None:
        """What other machines have found meanwhile is run next."""
        for of in self.checks:
            news = self.corpus.pull(of.subject.check.title, of.subject.check.address())
            fresh = (Saved(saved.id, saved.case) for saved in news)
            of.again += replayed(of.subject.check, fresh, self.corpus, ranks=self._ranks)
        self._complain("the database")
        self._asked = time.monotonic()

    def _complain(self, of: str) -> None:
        for line in self.corpus.complaints():
            self.listener.said(of, line)

    def so_far(self) -> Hunted:
        """What the run has come to."""
        return Hunted(
            rows=[*self._aside, *(standing.row for standing in self.checks)],
            findings=[finding for standing in self.checks for finding in standing.known.findings],
            lost=sum(standing.lost for standing in self.checks),
            seconds=time.monotonic() - self._begun,
            reason=self.reason,
        )

    # ---- turns as they are taken

    def _told(self, turn: Turn, said: object) -> None:
        """A case of a turn has run."""
        self.checks[turn.check].running += 1
        self._ran[turn] += 1

    def note(self, turn: Turn, came: Came) -> None:
        """A turn has ended."""
        self.checks[turn.check].running -= self._ran.pop(turn, 0)
        self._note(turn, came)

    def lose(self, turn: Turn) -> None:
        """What a worker was at that has ended, or is taken to hang, is lost, and told. Its cases
        are not decided, whatever others come to."""
        standing = self.checks[turn.check]
        standing.lost += 1
        standing.running -= self._ran.pop(turn, 0)
        standing.lately = reasons.turn_lost(standing.lost, aside=standing.lost >= LOST)
        if turn.how is not How.SHRINK:  # what that makes smaller fails as it is
            came = Came(open=[Open(reasons.cases_lost(), case=turn.saved)])
            anew = standing.begins(turn.how)
            _settle(standing.known, turn, came, anew=anew)
            reach = came.reach if anew else None
            self.state.add(standing.subject.name, turns=0, reach=reach, anew=anew)
        self.listener.said(standing.subject.title, standing.lately)

    # ---- what a turn came to

    def _note(self, turn: Turn, came: Came) -> None:
        """On disk first, then told."""
        standing = self.checks[turn.check]
        found, remove = self._found(standing, turn, came)
        gone = self._gone(standing, turn, came)
        if came.stale is not None:
            self._drop(standing, turn, came.stale)
        looked = turn.how in standing.arms
        name = standing.subject.name
        anew = standing.begins(turn.how)
        _settle(standing.known, turn, came, anew=anew)
        news = self.state.add(
            name,
            shown=came.shown,
            seconds=came.seconds,
            worst=came.worst,
            turns=int(looked),
            reach=came.reach if looked else None,
            anew=anew,
        )
        for identity in [*remove, *([turn.id] if gone is not None or _passes(turn, came) else [])]:
            self.corpus.remove(identity)
        if looked:
            standing.arms[turn.how].add(news, came.seconds)
        seen = standing.known.seen
        for degree in dict(came.worth):
            fresh = [parent for at, parent in came.worth if at == degree]
            standing.parents[degree] = self.shelf.keep(name, degree, fresh, seen)
        self._stand(standing, turn, came)
        if found is not None:
            self.listener.found(found)
        if gone is not None:
            self.listener.gone(gone)

    def _found(
        self, standing: Standing, turn: Turn, came: Came
    ) -> tuple[Finding | None, list[str]]:
        """What is to be told, and the ids of cases that another finding's stands for."""
        known, new = standing.known, came.finding
        old = next((f for f in known.findings if f.id == turn.id), None) if turn.id else None
        if turn.how is How.SHRINK and old is not None:
            # one that does not fail again, or can't be made smaller, stays as it was confirmed
            new = replace(new or old, shrunk=True, found_after=old.found_after)
            new = new.also(*old.signatures)
        if new is None:
            return None, []
        if turn.how is How.AGAIN:
            shrunk = old is not None and old.shrunk
            new = replace(new, shrunk=shrunk, found_after=old.found_after if old else 0)
        elif old is None:
            new = replace(new, found_after=known.cases + new.found_after)
        twin = next((f for f in known.findings if f.key == new.key and f is not old), None)
        if twin is not None:
            known.put(twin.also(*new.signatures), instead_of=twin)
            known.findings = [finding for finding in known.findings if finding is not old]
            return None, [new.id] if new.id != twin.id else []
        known.put(new, instead_of=old)
        return (new if old is None or new.id != old.id else None), []

    def _gone(self, standing: Standing, turn: Turn, came: Came) -> Finding | None:
        """The finding that no longer fails, taken out."""
        if not _passes(turn, came):
            return None
        known = standing.known
        gone = next((finding for finding in known.findings if finding.id == turn.id), None)
        known.findings = [finding for finding in known.findings if finding is not gone]
        return gone

    def _drop(self, standing: Standing, turn: Turn, why: str) -> None:
        """A saved case is none of the check's any more: its file stays, and is told of."""
        assert turn.saved is not None, "of a turn that runs one again"
        known, title = standing.known, standing.subject.title
        known.findings = [finding for finding in known.findings if finding.id != turn.id]
        known.settle(turn.saved)
        if turn.id:
            self.corpus.set_aside(turn.id, why)
            self._complain(title)
        else:
            self.listener.said(title, reasons.open_no_more(turn.saved, why))

    def _stand(self, standing: Standing, turn: Turn, came: Came) -> None:
        """How the check stands now."""
        title = standing.subject.title
        fresh = [line for line in came.left if line not in standing.left]
        standing.left += fresh
        for line in fresh:
            self.listener.said(title, line)
        if turn.how is How.AGAIN and came.trouble:
            if turn.id and came.reason is not None:
                self.corpus.set_aside(turn.id, came.reason)
                self._complain(title)
            elif came.reason is not None:
                self.listener.said(title, came.reason)
        elif came.trouble:
            standing.troubled, standing.fault = came.reason, came.fault
        elif turn.how in standing.arms:
            if standing.lost < LOST:
                standing.lately = None if standing.known.reach.cases else came.reason
            standing.exhausted |= turn.how is How.LOOK and not came.shown


class _Turns:
    """The jobs of a run."""

    def __init__(self, hunting: Hunting, giving: Giving) -> None:
        self.hunting, self.giving = hunting, giving

    def next(self) -> Turn | None:
        return self.giving.next()

    def ended(self, turn: Turn, came: Came) -> None:
        self.giving.ended(turn, came.seconds)
        self.hunting.note(turn, came)

    def lost(self, turn: Turn, seconds: float) -> None:
        self.giving.ended(turn, seconds)
        self.hunting.lose(turn)


def _passes(turn: Turn, came: Came) -> bool:
    """Whether a saved case no longer fails."""
    return turn.how is How.AGAIN and bool(turn.id) and came.saved is False


def _settle(known: Known, turn: Turn, came: Came, *, anew: bool) -> None:
    """What could not be decided stays so until its case is run again, and can be; or, of no case,
    until cases are drawn anew."""
    if anew:
        known.open = [one for one in known.open if one.case is not None]
    if turn.how is How.AGAIN and turn.saved is not None and came.saved is not None:
        known.settle(turn.saved)
    known.leave_open(came.open)
