"""The process that is the driver of the campaign's checks: round after round on one warm engine."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.catalogue.torture import candidates, footprint, known
from tests.catalogue.torture.fault import FAIL, KINDS, PASS, UNKNOWN, Effect, Place
from tests.catalogue.torture.judge import Row, Seen
from tests.catalogue.torture.records import Records
from tests.catalogue.torture.rounds import Round
from tpcheck import Check
from tpcheck.search.options import Options
from tpcheck.search.session import Session, open_session
from tpcheck.search.verify import verify_all
from tpcheck.verdict import CheckResult

OPTIONS = Options(examples=2, degrees=(2,), dtypes=("float64",), corpus=None, shrink_cases=0)
#: Seconds that a case may take: hangs are waited for so long.
TIME_LIMIT = 3.0
#: Seconds in which what was killed has gone.
GONE = 5.0
RANKS = 2
#: The variable with the file in which candidates tell of processes that nothing else tells of.
TOLD = "TORTURE_PROCESSES"


def work(todo: Sequence[Round], records: Records, folder: Path) -> None:
    """Runs rounds until one raises: the next worker goes on with a fresh engine.

    Args:
        folder: for what candidates tell.
    """
    told = folder / "processes"
    told.touch()
    os.environ[TOLD] = str(told)
    with open_session(todo[0].engine, RANKS, time_limit=TIME_LIMIT, confirm=True) as session:
        session.require_trust()
        marks = [engine.world.folder.mark for engine in _engines(session)]
        for one in todo:
            records.begin(one.label)
            row = played(one, session)
            row.processes = _left(session, marks, told)
            row.driver = footprint.of_driver(engine.folder for engine in _engines(session))
            records.add(row)
            if row.exceptions and one.place is not Place.IMPORT:
                break
    last = Row(todo[0].engine, -1, "the end", "when the engine is closed")
    _wait(lambda: footprint.processes(marks) or footprint.alive(_told(told)))
    left = footprint.processes(marks) | footprint.alive(_told(told))
    last.processes = list(left.values())
    last.files = list(map(str, footprint.folders(marks)))
    records.add(last)


def played(one: Round, session: Session) -> Row:
    """What a round comes to on the session's ranks."""
    kind = KINDS[one.kind]
    row = Row(one.engine, one.number, one.kind, one.label)
    begun = time.monotonic()
    expected = dict.fromkeys(known.RIGHT, PASS) | dict.fromkeys(known.WRONG, FAIL)
    with _faulty(one) as check:
        own = kind.expected(one.place)
        if one.engine == "threads" and kind.effect is Effect.LEAVES:
            own = own | UNKNOWN  # what it changes may meet the rank beside it in its own case
        if one.within and one.within not in known.RIGHT:
            own = (own | FAIL) - PASS  # where the first case may have any verdict, too
        checks = [check, *(known.FOLLOWERS[name] for name in one.followers)]
        roles = [("fault", own), *(("follow-up", expected[name]) for name in one.followers)]
        lists = [one.order] if one.mode == "together" else [(i,) for i in range(len(checks))]
        try:
            for listed in lists:
                results = verify_all([checks[i] for i in listed], session, OPTIONS)
                row.seen += [seen(*roles[i], r) for i, r in zip(listed, results, strict=True)]
        except Exception:
            row.exceptions.append(traceback.format_exc())
    row.seconds = round(time.monotonic() - begun, 3)
    return row


@contextlib.contextmanager
def _faulty(one: Round) -> Iterator[Check]:
    trigger, name = one.trigger, f"{one.kind}-{one.number}"
    if one.place is Place.IMPORT:
        with candidates.imported(trigger, name) as check:
            yield check
    elif one.within:
        yield candidates.within(trigger, known.WITHIN[one.within], name)
    else:
        yield candidates.faulty(trigger, name)


def seen(role: str, expected: frozenset[str], result: CheckResult) -> Seen:
    """A result, as data."""
    reason = result.reason or ""
    if result.counterexample is not None:
        found = result.counterexample
        kinds = ", ".join(m.kind for m in found.mismatches[:3])
        reason = f"{found.diagnosis.code}: {kinds}: {found.diagnosis.message}"[:300]
    left = tuple(one.what.name if one.what else "an effect" for one in result.left)
    return Seen(result.name, role, tuple(sorted(expected)), result.verdict.value, reason, left)


def _engines(session: Session) -> list[Any]:
    return [session.engine, *([session.confirm] if session.confirm else [])]


def _left(session: Session, marks: Sequence[str], told: Path) -> list[str]:
    """Processes that no engine needs; those that were told of are forgotten."""

    def others() -> dict[int, str]:
        own: set[int] = {os.getpid()}
        for engine in _engines(session):
            own |= engine.world.processes
        stems = footprint.descendants(os.getpid())
        found = footprint.processes(marks) | footprint.alive(_told(told)) | stems
        return {pid: what for pid, what in footprint.alive(set(found) - own).items()}

    found = _wait(others)
    told.write_text("")
    return list(found.values())


def _told(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()]


def _wait(left: Any) -> dict[int, str]:
    """What is left once nothing is, or after some seconds."""
    until = time.monotonic() + GONE
    while (found := left()) and time.monotonic() < until:
        time.sleep(0.05)
    return dict(found)
