"""Which check is looked at when, and for how long."""

from __future__ import annotations

import time

import pytest

from tpcheck.search.options import SHRINK_CASES, Options
from tpcheck.search.schedule import Job, Schedule
from tpcheck.verdict import CheckResult, Verdict

OF_RUN = Options(corpus=None)


def came(verdict: Verdict = Verdict.PASS, **more: object) -> CheckResult:
    return CheckResult("check", verdict, "gloo", **more)  # type: ignore[arg-type]


def failed() -> CheckResult:
    """As a look alone tells it."""
    return came(Verdict.FAIL, reason="tp=2 seed=0", seconds=2.0)


def test_without_a_budget_each_runs_once_to_its_end() -> None:
    schedule = Schedule(2, None)
    jobs = [schedule.next(), schedule.next(), schedule.next()]
    assert jobs == [Job(0), Job(1), None]
    assert Job(0).options(OF_RUN) == OF_RUN
    told = failed()
    assert schedule.ended(Job(0), told) is told
    assert schedule.next() is None


def test_under_a_budget_failures_are_explained_when_all_had_their_share() -> None:
    schedule = Schedule(3, 60.0)
    first = schedule.next()
    assert first is not None and first.find_only
    looked = first.options(OF_RUN)
    assert (looked.find_only, looked.shrink_cases) == (True, 0)
    assert looked.end is not None and first.deadline is not None
    assert looked.end > first.deadline  # of all three, and of its share
    assert schedule.ended(first, failed()) is None  # more is to come
    for number in (1, 2):
        job = schedule.next()
        assert job is not None and (job.check, job.find_only) == (number, True)
        result = came()
        assert schedule.ended(job, result) is result
    again = schedule.next()
    assert again == Job(0)  # from here on no clock ends it
    assert again.options(OF_RUN).shrink_cases == SHRINK_CASES
    result = came(Verdict.FAIL, seconds=3.0)
    assert schedule.ended(again, result) is result
    assert result.seconds == 5.0
    assert schedule.next() is None


def test_each_has_its_share_of_what_is_left() -> None:
    now = time.monotonic()
    schedule = Schedule(4, 80.0)
    shares = []
    for _ in range(4):
        job = schedule.next()
        assert job is not None and job.deadline is not None
        shares.append(job.deadline - now)
    # nothing was used of it until now
    assert shares == pytest.approx([20.0, 80 / 3, 40.0, 80.0], abs=1.0)


def test_time_runs_from_the_first_job_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("tpcheck.search.schedule.time.monotonic", lambda: now)
    schedule = Schedule(1, 80.0)
    now += 70.0  # ranks are started
    assert schedule.next() == Job(0, now + 80.0, find_only=True, end=now + 80.0)
    assert schedule.next() is None


def test_a_budget_beyond_every_clock_is_one() -> None:
    job = Schedule(1, 2.0**62).next()
    assert job is not None and job.options(OF_RUN).find_only


def test_side_by_side_a_share_is_larger() -> None:
    now = time.monotonic()
    job = Schedule(4, 80.0, at_once=2).next()
    assert job is not None and job.deadline is not None
    assert job.deadline - now == pytest.approx(40.0, abs=1.0)


def test_when_the_time_is_up_a_failure_is_explained_and_not_made_smaller() -> None:
    schedule = Schedule(1, 1e-9)
    first = schedule.next()
    assert first is not None
    schedule.ended(first, failed())
    assert schedule.next() == Job(0, shrink=False)
    assert Job(0, shrink=False).options(OF_RUN).shrink_cases == 0


@pytest.mark.parametrize(
    ("again", "reason"),
    [
        (came(), "tp=2 seed=0 failed once; run again, neither it nor any other case did"),
        (
            came(Verdict.UNKNOWN, reason="the ranks are gone"),
            "tp=2 seed=0 failed; run again: the ranks are gone",
        ),
    ],
)
def test_a_failure_is_not_lost_where_it_does_not_show_again(
    again: CheckResult, reason: str
) -> None:
    schedule = Schedule(1, 60.0)
    first = schedule.next()
    assert first is not None
    schedule.ended(first, failed())
    job = schedule.next()
    assert job is not None
    result = schedule.ended(job, again)
    assert result is not None
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, reason)
