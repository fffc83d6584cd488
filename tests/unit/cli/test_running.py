"""What is seen of a run while it goes on. The clock is the test's own."""

from __future__ import annotations

import io
import types
from collections.abc import Callable

import pytest

from fixtures.parallel.linear import RowLinear
from tests.candidates import CASE, check
from tpcheck.cli import running
from tpcheck.cli.console import Console
from tpcheck.cli.running import Running
from tpcheck.search.news import Begun, Explains, Follower, Met, Ran
from tpcheck.search.schedule import Job

CHECKS = [check(RowLinear).named("row"), check(RowLinear).named("column")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Passes = Callable[[float], None]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """Lets seconds go by."""
    now = [100.0]
    monkeypatch.setattr(running, "time", types.SimpleNamespace(monotonic=lambda: now[0]))

    def go(seconds: float) -> None:
        now[0] += seconds

    return go


def shown_on(
    file: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, terminal: bool
) -> Callable[[], str]:
    """Has the run shown there; returns what came since it was asked last."""
    shown = Console(soft_wrap=True, file=file, force_terminal=terminal, width=100)
    monkeypatch.setattr(running, "console", shown)

    def news() -> str:
        text = file.getvalue()
        file.seek(0)
        file.truncate()
        return text

    return news


def test_where_there_is_no_terminal_lines_are_sparse(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = shown_on(io.StringIO(), monkeypatch, terminal=False)
    job, other = Job(0, deadline=160.0), Job(1)
    with Running(CHECKS) as run:
        run.begun(job)
        run.begun(other)
        for _ in range(20):
            passes(1.0)
            run.told(job, Ran(2))
        assert news() == ""
        passes(10.0)
        run.moment()
        first, second = news().splitlines()
        assert first.split(maxsplit=2)[1:] == ["row", "20 cases, 0.7 per second, tp 2, 30 s left"]
        assert second.split(maxsplit=2)[1:] == ["column", "starts, 30 s"]
        run.moment()
        run.ended(other)
        passes(30.0)
        run.moment()
        (only,) = news().splitlines()
        assert only.endswith("0.3 per second, tp 2, 0 s left")
    assert news() == ""


def test_a_failure_is_told_once_as_it_was_drawn(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = shown_on(io.StringIO(), monkeypatch, terminal=False)
    with Running(CHECKS) as run:
        for job in (Job(0, find_only=True), Job(0)):
            run.begun(job)
            run.told(job, Begun())
            run.told(job, Ran(2))
            run.told(job, Met(CASE, "output", 1))
            run.ended(job)
    (line,) = news().splitlines()
    assert line.split(maxsplit=2)[:2] == ["FOUND", "row"]
    assert f"case 1 fails in output: {CASE.describe()}" in line and "explained later" in line


@pytest.mark.parametrize("coloured", [True, False])
def test_on_a_terminal_each_running_check_has_a_line(
    passes: Passes, monkeypatch: pytest.MonkeyPatch, coloured: bool
) -> None:
    if not coloured:
        monkeypatch.setenv("NO_COLOR", "1")
    news = shown_on(Terminal(), monkeypatch, terminal=True)
    row, column = Job(0), Job(1, deadline=110.0)
    with Running(CHECKS) as run:
        run.begun(row)
        run.begun(column)
        news()
        passes(1.0)
        run.told(column, Ran(4))
        drawn = news()
        assert "row                       starts, 1 s" in drawn
        assert "1 case, 1.0 per second, tp 4, 9 s left" in drawn
        run.told(row, Ran(2))
        run.told(row, Met(CASE, "loss", 1))
        assert "FOUND   row" in news(), "a failure is told at once"
        run.told(row, Ran(2))
        assert news() == "", "no picture before it is time"
        passes(1.0)
        run.moment()
        assert "case 1 failed; being made smaller, 1 case, 1.0 per second, tp 2" in news()
        run.told(row, Explains())
        passes(1.0)
        run.moment()
        assert "case 1 failed; being explained" in news()
        run.ended(row)
        drawn = news()
        assert "row" not in drawn and "column" in drawn


def test_a_case_that_begins_anew_counts_anew(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = shown_on(io.StringIO(), monkeypatch, terminal=False)
    job = Job(0)
    with Running(CHECKS) as run:
        run.begun(job)
        for said in (Begun(), Ran(2), Met(CASE, "loss", 1), Begun(), Ran(4)):
            run.told(job, said)
        news()
        passes(40.0)
        run.moment()
    assert " 1 case, 0.0 per second, tp 4" in news()


def test_checks_of_one_name_are_told_apart(passes: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    from tpcheck.search import addresses

    at = iter(["a.py::row", "b.py::row"])
    monkeypatch.setattr(addresses, "address", lambda check: next(at))
    news = shown_on(io.StringIO(), monkeypatch, terminal=False)
    with Running([CHECKS[0], CHECKS[0]]) as run:
        for number in (0, 1):
            run.begun(Job(number))
        passes(40.0)
        run.moment()
    assert [line.split()[1:3] for line in news().splitlines()] == [
        ["row", "(a.py::row)"],
        ["row", "(b.py::row)"],
    ]


def test_who_does_not_listen_may_be_told_all() -> None:
    deaf = Follower()
    deaf.begun(Job(0))
    deaf.told(Job(0), Begun())
    deaf.moment()
    deaf.ended(Job(0))
    assert deaf.every is None
