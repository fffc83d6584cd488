"""Workers as processes: what they say, how they end, and with whom."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from tpcheck.cli import signals
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument, Untrusted
from tpcheck.search.session import Session
from tpcheck.workers import worker as room
from tpcheck.workers.crew import Crew
from tpcheck.workers.worker import Done, Failed, Message, Opened, Told


class Trusted(Session):
    """A session without ranks."""

    def require_trust(self) -> None:
        pass


class Unsent(Exception):
    """Is pickled, and can't be unpickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


@contextlib.contextmanager
def start() -> Iterator[Session]:
    yield Trusted(None)  # type: ignore[arg-type]


def work(session: Session, job: Any, tell: Callable[[Any], None]) -> Any:
    if job == "die":
        os._exit(1)
    if job == "raise":
        raise ZeroDivisionError
    if job == "leaves a child":
        if os.fork() == 0:
            time.sleep(20)
            os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    if job == "raise what can't be sent":
        raise Unsent("one", "two")
    tell(f"at {job}")
    return os.getpid(), job


def heard(crew: Crew, count: int) -> list[Message | None]:
    found: list[Message | None] = []
    while len(found) < count:
        for worker, message in crew.hear(30):
            found.append(message)
            if isinstance(message, Done):
                worker.job = None
    return found


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew(1, start, work)
    yield crew
    crew.kill()


def test_jobs_one_after_the_other_in_one_process(crew: Crew) -> None:
    said: list[Message | None] = []
    for job in (0, "b"):
        (worker,) = crew.idle()
        worker.give(job)
        assert not crew.idle()
        said += heard(crew, 3 if job == 0 else 2)
    opened, one, first, two, second = said
    assert isinstance(opened, Opened) and one == Told("at 0") and two == Told("at b")
    assert isinstance(first, Done) and isinstance(second, Done)
    assert first.value[0] == second.value[0] != os.getpid()


def test_one_that_ends_is_noticed_and_replaced(crew: Crew) -> None:
    crew.idle()[0].give("die")
    assert isinstance(heard(crew, 2)[0], Opened)
    crew.replace(crew.workers[0])
    crew.idle()[0].give("again")
    done = heard(crew, 3)[-1]
    assert isinstance(done, Done) and done.value[1] == "again"


def test_what_a_job_raises_is_told(crew: Crew) -> None:
    crew.idle()[0].give("raise")
    failed = heard(crew, 2)[-1]
    assert isinstance(failed, Failed) and isinstance(failed.error, ZeroDivisionError)


def test_an_error_that_can_not_be_sent_is_told(crew: Crew) -> None:
    crew.idle()[0].give("raise what can't be sent")
    failed = heard(crew, 2)[-1]
    assert isinstance(failed, Failed) and "Unsent: one" in str(failed.error)


def test_one_whose_child_lives_on_is_noticed(crew: Crew) -> None:
    crew.idle()[0].give("leaves a child")
    until, said = time.monotonic() + 10, []
    while None not in said and time.monotonic() < until:
        said += [message for _, message in crew.hear(1)]
    assert said[-1] is None


def test_a_session_that_can_not_be_opened_or_trusted_is_raised() -> None:
    class Refusing(Session):
        def require_trust(self) -> None:
            raise Untrusted("no canary")

    for opens, error in (
        (lambda: contextlib.nullcontext(Refusing(None)), Untrusted),
        (lambda: Engine("no such", 2), InvalidArgument),
    ):
        crew = Crew(1, opens, work)  # type: ignore[arg-type]
        with pytest.raises(error):
            heard(crew, 1)
        crew.kill()


def test_a_crew_that_is_closed_or_killed_has_no_process_left() -> None:
    for end in (Crew.close, Crew.kill):
        crew = Crew(2, start, work)
        processes = [worker.process for worker in crew.workers]
        end(crew)
        assert not any(process.is_alive() for process in processes)
        assert not crew.workers


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_signal_as_one_is_made_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, nth: int, replaced: bool
) -> None:
    """One that is in no list would be waited for at the exit, and waits for its first job."""
    begin, begun = BaseProcess.start, list[BaseProcess]()

    def starts(process: BaseProcess) -> None:
        begin(process)
        begun.append(process)
        if len(begun) == nth + replaced:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(BaseProcess, "start", starts)
    if replaced:
        crew = Crew(nth, start, work)
        with pytest.raises(KeyboardInterrupt):
            crew.replace(crew.workers[0])
        crew.kill()
    else:
        with pytest.raises(KeyboardInterrupt):
            Crew(2, start, work)
    alive = [process for process in begun if process.is_alive()]
    for process in alive:
        process.kill()
    assert not alive


def test_a_process_that_a_signal_ends_as_it_is_forked_does_not_hear_it(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's signal may come before it has handlers of its own."""
    monkeypatch.setattr(signals.Signals, "hear", lambda *_: os.write(2, b"heard"))
    monkeypatch.setattr(room, "die_with", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with signals.heard():
        crew = Crew(1, start, work)
        assert heard(crew, 1) == [None]
        crew.kill()
    assert capfd.readouterr().err == ""


def test_a_process_whose_parent_died_as_it_was_forked_ends() -> None:
    if (child := os.fork()) == 0:
        try:
            room.begin(1)
        finally:
            os._exit(0)  # it went on
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
