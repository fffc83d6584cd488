"""A limit on what the driver computes: it stops a block, and leaves the user's alarm alone."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import candidates, crowded
from tpcheck import Case, Layout, Training, specs
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.limit import TimeUp, one_process, within
from tpcheck.oracle.pose import pose
from tpcheck.spec import Spec

SHORT = 0.05


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def beside(block: Callable[[], None]) -> None:
    """Runs it in another thread; what it raises is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            block()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def here(block: Callable[[], None]) -> None:
    block()


def spin() -> None:
    while True:
        pass


def stubborn() -> None:
    try:
        spin()
    except BaseException:
        spin()


@pytest.mark.parametrize("where", [here, beside])
@pytest.mark.parametrize("block", [spin, stubborn])
def test_a_block_without_end_is_stopped(
    where: Callable[[Callable[[], None]], None], block: Callable[[], None]
) -> None:
    def limited() -> None:
        with within(SHORT):
            block()

    with pytest.raises(TimeUp):
        where(limited)


@pytest.mark.parametrize("where", [here, beside])
def test_a_block_that_ends_is_not_disturbed_later(
    where: Callable[[Callable[[], None]], None],
) -> None:
    def limited() -> None:
        with within(SHORT):
            pass
        time.sleep(2 * SHORT)

    where(limited)


@pytest.mark.parametrize("where", [here, beside])
def test_waiting_for_a_processor_does_not_count(
    where: Callable[[Callable[[], None]], None],
) -> None:
    def limited() -> None:
        until = time.thread_time() + 0.3
        with within(0.7):
            while time.thread_time() < until:
                pass

    with crowded.processors():
        where(limited)


def test_the_users_own_alarm_rings_when_it_is_due() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, SHORT)
        with pytest.raises(TimeUp), within(3 * SHORT):
            while True:
                pass
        assert rung == [signal.SIGALRM]
        signal.setitimer(signal.ITIMER_REAL, 60.0, 7.0)
        with within(30.0):
            pass
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 30.0 < left <= 60.0 and interval == 7.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


class Odd(BaseException):
    pass


def _raise(error: BaseException) -> None:
    raise error


def odd(reference: Callable[[Case], object]) -> Spec:
    given = specs.row_linear()
    return Spec(
        name="odd",
        reference=reference,
        inputs=given.inputs,
        layout=lambda case: Layout(),
        cases=given.cases,
    )


CASE = Case(dims=candidates.linear_dims())


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (lambda case: sys.exit(0), "reference raised SystemExit: 0"),
        (lambda case: _raise(Odd("gone")), "reference raised Odd: gone"),
        (lambda case: spin(), "took longer than 0.05 s"),
        (lambda case: lambda x: spin(), "took longer than 0.05 s"),
        (lambda case: lambda x: sys.exit(1), "forward or backward raised SystemExit: 1"),
    ],
)
def test_a_reference_that_exits_or_never_ends_is_one_line(
    reference: Callable[[Case], object], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        pose(odd(reference), CASE, limit=SHORT)
    assert "\n" not in str(caught.value)


def test_ctrl_c_in_a_reference_is_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt):
        pose(odd(lambda case: _raise(KeyboardInterrupt())), CASE)


def test_a_child_that_the_spec_forks_does_not_go_on_as_the_driver(tmp_path: Path) -> None:
    """It would pose, run and report the same checks again."""
    went_on = tmp_path / "went on"
    own, child = os.getpid(), 0
    try:
        with one_process():
            child = os.fork()
        if not child:
            went_on.touch()
    finally:
        if os.getpid() != own:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not went_on.exists()


class Forks:
    """An optimizer that forks in each of its methods, and in what it keeps."""

    def __init__(self, parameters: Any) -> None:
        self.parameters, self.kept = list(parameters.values()), [os.fork()]

    def zero_grad(self) -> None:
        self.kept.append(os.fork())
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        self.kept.append(os.fork())

    @property
    def state(self) -> dict[Any, Any]:
        self.kept.append(os.fork())
        return {}


def children() -> set[int]:
    """This process's, of which other tests may have some that go on."""
    own = os.getpid()
    return set(map(int, Path(f"/proc/{own}/task/{own}/children").read_text().split()))


def _fork(*given: object) -> None:
    os.fork()


@pytest.mark.parametrize(
    "spec",
    [
        replace(specs.row_linear(), init=_fork),
        replace(specs.row_linear(), training=Training(Forks, steps=1)),
        replace(specs.row_linear(), requires=_fork),
    ],
    ids=["init", "optimizer", "requires"],
)
def test_no_child_of_a_spec_poses_a_case_to_its_end(spec: Spec, tmp_path: Path) -> None:
    """Each that came out of `pose` would go on as a second driver."""
    came_out, own, before = tmp_path / "came out", os.getpid(), children()
    try:
        pose(spec, CASE)
        with came_out.open("a") as file:
            file.write(f"{os.getpid()}\n")
    finally:
        if os.getpid() != own:
            os._exit(9)
    for child in children() - before:
        os.waitpid(child, 0)
    assert came_out.read_text().split() == [str(own)]
