"""The rarest of the cases that are drawn are taken: all combinations of three features alike."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tpcheck.case import Case
from tpcheck.fuzz.novel import Met, Novel, near_step
from tpcheck.search.stream import Stream

SEEDS = st.integers(0, 2**20)


def cases() -> SearchStrategy[Case]:
    """One in 125 has all three."""
    rare = st.integers(0, 4).map(lambda n: n == 3)
    return st.builds(
        lambda a, b, c, seed: Case(dims={"a": a, "b": b, "c": c}, seed=seed),
        rare,
        rare,
        rare,
        SEEDS,
    )


def count(stream: Stream, of: int = 100) -> int:
    taken = [case for _ in range(of // 20) for case in stream.take(20)]
    assert len(set(taken)) == len(taken) == of
    return sum(all(case.dims.values()) for case in taken)


def test_what_three_features_need_is_met_more_often() -> None:
    plain = sum(count(Stream(cases(), key)) for key in "ab")
    assert sum(count(Novel(Met(), cases(), key)) for key in "ab") >= 4 * max(plain, 1)


def test_the_same_key_draws_the_same_and_what_ran_is_not_taken() -> None:
    first = Novel(Met(), cases(), "k").take(20)
    assert Novel(Met(), cases(), "k").take(20) == first
    again = Novel(Met(), cases(), "k", (), lambda case: case in first).take(20)
    assert len(again) == 20 and not set(again) & set(first)


def test_what_was_met_is_worth_less_and_counts_in_later_streams() -> None:
    met, case = Met(), Case(dims={"n": 3})
    words = met.words(case)
    before = met.worth(words)
    met.add(words)
    other = met.words(Case(dims={"n": 4}))
    assert met.worth(words) == before / 2 < met.worth(other) < before


def test_of_mixed_memory_the_format_of_each_tensor_counts() -> None:
    met = Met()
    case = Case(memory="mixed", seed=1)
    assert not [word for word in met.words(case) if word[0] in ("memory", "x")]
    met.names |= {"x"}
    formats = {str(met.words(Case(memory="mixed", seed=seed))) for seed in range(40)}
    assert len(formats) > 5


@pytest.mark.parametrize(
    ("size", "step"),
    [(0, (16, 0)), (15, (16, 1)), (17, (16, -1)), (24, (8, 0)), (23, (8, 1)), (6, (2, 0))],
)
def test_sizes_are_told_apart_by_the_steps_that_they_end_at(
    size: int, step: tuple[int, int]
) -> None:
    assert near_step(size) == step


def test_sizes_beside_steps_are_drawn_as_well() -> None:
    sizes = st.builds(lambda n, seed: Case(dims={"n": n}, seed=seed), st.integers(1, 300), SEEDS)
    shares = []
    for kind in (Stream, partial(Novel, Met())):
        of = kind(sizes, "k")
        of.take(40)
        drawn = [case["n"] for case in of.drawn]
        shares.append(sum(n > 60 and n % 64 in (0, 1, 63) for n in drawn) / len(drawn))
    assert shares[1] > 2 * shares[0] > 0
