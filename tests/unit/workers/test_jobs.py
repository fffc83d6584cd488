"""Jobs that end in any order are told in the order in which they were given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tpcheck.workers.jobs import InOrder


@given(st.permutations(range(6)), st.integers(1, 6))
def test_they_are_told_in_the_order_in_which_they_were_given(ends: list[int], ahead: int) -> None:
    told: list[tuple[int, str]] = []
    order: InOrder[int, str] = InOrder(lambda job, value: told.append((job, value)))
    jobs = iter(range(6))
    running = [order.given(next(jobs)) for _ in range(ahead)]
    while running:
        job = min(running, key=ends.index)
        running.remove(job)
        order.ended(job, f"came of {job}")
        running += [order.given(later) for later in [next(jobs, None)] if later is not None]
        assert [one for one, _ in told] == list(range(len(told))), "none before an earlier one"
        assert {*order.waiting} >= {*running} and len(order.waiting) + len(told) <= 6
    assert told == [(job, f"came of {job}") for job in range(6)] and not order.waiting


def test_one_that_ended_is_told_at_once_where_none_before_it_is_left() -> None:
    told: list[str] = []
    order: InOrder[str, int] = InOrder(lambda job, _: told.append(job))
    for job in ("a", "b", "c"):
        order.given(job)
    order.ended("b", 1)
    assert told == [] and [*order.waiting] == ["a", "b", "c"]
    order.ended("a", 2)
    assert told == ["a", "b"] and [*order.waiting] == ["c"]
