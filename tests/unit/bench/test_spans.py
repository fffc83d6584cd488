"""Parts of a whole: each has its own time, and what is inside another is counted once."""

from __future__ import annotations

import types
from types import SimpleNamespace

import pytest

from tpcheck.bench import spans
from tpcheck.bench.spans import DRAW, NOISE, RANK, REST, STATE, WIRE, Spans


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still until it is moved."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(spans, "time", types.SimpleNamespace(perf_counter=lambda: now.seconds))
    return now


def test_what_is_inside_a_part_is_not_its_own(clock: SimpleNamespace) -> None:
    def noise() -> str:
        clock.seconds += 4.0
        return "made"

    subject = SimpleNamespace(noise=noise)
    found = Spans()
    with found.around(subject, "noise", NOISE), found.span(REST):
        clock.seconds += 1.0
        with found.span(DRAW):
            clock.seconds += 2.0
            assert subject.noise() == "made"
            assert subject.noise() == "made"
        clock.seconds += 0.5
    assert subject.noise is noise, "it is put back"
    taken = {part: seconds for part, seconds in found.seconds.items() if seconds}
    assert taken == {DRAW: 2.0, NOISE: 8.0, REST: 1.5}


def test_a_call_that_raises_is_timed_and_put_back(clock: SimpleNamespace) -> None:
    def fail() -> None:
        clock.seconds += 1.0
        raise ValueError

    subject, found = SimpleNamespace(fail=fail), Spans()
    with pytest.raises(ValueError), found.around(subject, "fail", DRAW), found.span(REST):
        subject.fail()
    assert subject.fail is fail and (found.seconds[DRAW], found.seconds[REST]) == (1.0, 0.0)


def test_what_ranks_take_is_no_transport() -> None:
    found = Spans()
    found.seconds[WIRE] = 10.0
    found.move(6.0, WIRE, RANK)
    found.move(1.0, WIRE, STATE)
    assert (found.seconds[WIRE], found.seconds[RANK], found.seconds[STATE]) == (3.0, 6.0, 1.0)
