"""Whatever a rank, its host or its files do becomes evidence; the next case is decided normally,
and no process and no file stays."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import candidates
from tests.ranks.engines import faults
from tests.unit.kernels.test_sanitizer import READ
from tpcheck.engines.engine import Engine
from tpcheck.protocol.sanitized import LOG
from tpcheck.report.as_json import detail
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Two ranks, which each fault finds as the one before left them."""
    with Engine("gloo", 2, time_limit=20) as engine:
        yield engine


def come_to(engine: Engine, fault: Callable[[], None]) -> CaseResult:
    return Runner(faults.check(fault), engine).run(candidates.CASE)


def passes(engine: Engine) -> bool:
    check = candidates.check(candidates.Row)
    return Runner(check, engine).run(candidates.CASE).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (faults.real_time_signal, Kind.CRASH, "killed by SIGRTMIN+6"),
        (faults.write_to_every_descriptor, Kind.CRASH, "wrote to its socket to the driver"),
        (faults.send_what_runs_code, Kind.CRASH, "wrote to its socket to the driver"),
        (faults.announce_a_giant_message, Kind.CRASH, "wrote to its socket to the driver"),
        (faults.close_its_socket, Kind.CRASH, "closed its socket to the driver"),
        (faults.leave_a_child_with_its_socket, Kind.CRASH, "killed by SIGKILL"),
        (faults.remove_the_folder_of_the_run, Kind.EXCEPTION, "deliberate"),
        (faults.kill_the_zygote, Kind.CRASH, "gone"),
        (faults.stop_the_zygote, Kind.EXCEPTION, "deliberate"),
        (faults.signal_its_group, Kind.CRASH, "killed by SIGKILL"),
        (faults.print_without_end, Kind.CRASH, "exit code 3"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_fault_is_evidence_and_the_next_case_is_decided(
    engine: Engine, fault: Callable[[], None], kind: Kind, says: str
) -> None:
    result = come_to(engine, fault)
    found = next(m for m in result.causes if m.kind is kind and m.rank == 1)
    assert detail(found)["reason"] == says
    assert passes(engine)


def test_a_rank_that_ends_by_an_access_outside_of_memory_is_told_by_it(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log had before is of an earlier case; the driver may look at it only afterwards."""
    log = tmp_path / "log"
    log.write_text(READ.replace("_forward", "earlier"))
    monkeypatch.setenv(LOG, str(log))
    run = engine.run
    monkeypatch.setattr(engine, "run", lambda *work: run(*work[:2], partial(until_it_says, log)))
    fault = partial(faults.end_with_a_log, str(log), READ)
    (found,) = (m for m in come_to(engine, fault).causes if m.rank == 1)
    assert (found.kind, found.tensor) == (Kind.MEMORY, "_forward"), found
    monkeypatch.undo()
    assert passes(engine)


def until_it_says(log: Path) -> None:
    while "_forward" not in log.read_text():
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("fault", "more"), [(faults.speak_of_other_things, 0), (faults.let_a_child_go_on, 1)]
)
def test_who_else_speaks_on_a_ranks_socket_is_not_heard(
    engine: Engine, fault: Callable[[], None], more: int
) -> None:
    assert passes(engine)
    starts = engine.starts
    assert come_to(engine, fault).verdict is Verdict.PASS
    assert passes(engine) and engine.starts == starts + more, "a child costs the ranks"


def test_of_what_a_rank_prints_the_end_is_kept(engine: Engine) -> None:
    found = come_to(engine, faults.print_without_end).causes[0]
    assert detail(found)["log"].endswith("and this is the end")
    assert sum(path.stat().st_size for path in engine.folder.iterdir()) < 2**20


def test_what_a_candidate_leaves_in_the_runs_folder_goes_with_its_ranks(engine: Engine) -> None:
    assert come_to(engine, faults.leave_a_file).verdict is Verdict.PASS
    assert (engine.folder / "large").exists()
    engine.renew()
    assert not (engine.folder / "large").exists() and passes(engine)


def test_ranks_that_end_between_two_cases_are_started_anew(engine: Engine) -> None:
    assert passes(engine)
    first = os.pidfd_open(engine.hosts[0].pid)
    os.kill(engine.hosts[0].pid, 9)
    assert select.select([first], [], [], 30)[0], "it has ended: the kernel may take its time"
    os.close(first)
    os.kill(engine.hosts[1].pid, 19)
    assert passes(engine)


def test_what_candidates_started_ends_with_their_ranks() -> None:
    with Engine("gloo", 2) as engine:
        mark = engine.folder.name
        assert come_to(engine, faults.daemon).verdict is Verdict.PASS
        assert len(marked(mark)) == 5, "zygote, template, two hosts, and what one of them left"
        engine.kill()
        assert left(mark, 2) == 2, "the zygote, the template"
        come_to(engine, faults.kill_the_zygote)
        assert passes(engine)
        folder = engine.folder
    assert left(mark, 0) == 0 and not folder.exists()


def marked(mark: str) -> list[int]:
    """The processes of a run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"TPCHECK_INSIDE_A_RANK={mark}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def left(mark: str, wanted: int) -> int:
    """How many processes of a run there are, once there are as few as `wanted`, or 10 s later."""
    deadline = time.monotonic() + 10
    while len(marked(mark)) > wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return len(marked(mark))
