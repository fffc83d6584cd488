"""The order in which cases are run: the same for a key, each once, pairs of features first."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from tpcheck import Case, specs, strategies
from tpcheck.strategies import Space
from tpcheck.stream import Stream, features, pairs

FOUR = Space((4,))


def stream(key: str) -> Stream:
    return Stream(strategies.of(specs.attention(), FOUR), key)


def test_the_same_key_gives_the_same_cases_each_once_and_the_dullest_first() -> None:
    first, again = stream("a"), stream("a")
    cases = first.take(10) + first.take(10)
    assert cases == again.take(10) + again.take(10)
    assert len(set(cases)) == 20
    assert cases[:10] != stream("b").take(10)
    assert (cases[0].dtype, cases[0].step, cases[0]["kv_heads"]) == ("float64", False, 1)


def test_ten_cases_show_more_than_ten_by_chance() -> None:
    ours, chance, replicas = 0, 0, 0
    for key in map(str, range(12)):
        taken = stream(key).take(10)
        ours += len(set().union(*map(pairs, taken)))
        drawn = strategies.sample(strategies.of(specs.attention(), FOUR), 10, key)
        chance += len(set().union(*map(pairs, drawn)))
        replicas += 2 in {case["kv_heads"] for case in taken}
    assert ours > 1.1 * chance
    assert replicas >= 11, "K/V heads below the degree, and more than one"


def test_a_feature_is_a_kind_and_not_a_size() -> None:
    sizes = [dict(features(Case(dims={"n": n}, mesh={"tp": 4})))["n"] for n in (1, 3, 2, 4, 5, 8)]
    one, three, two, four, five, eight = sizes
    assert three == two
    assert len({one, two, four, five, eight}) == 5
    assert dict(features(Case(dims={"bias": True})))["bias"] is True
    assert dict(features(Case(dims={"a": 2, "b": 3})))["a = b"] is False


def test_a_stream_ends_with_its_cases() -> None:
    cases = [Case(seed=1), Case(seed=2), Case(seed=3)]
    few = Stream(st.sampled_from(cases), "")
    assert sorted(case.seed for case in few.take(10)) == [1, 2, 3]
    assert few.take(10) == [] and not few.empty


def test_a_strategy_without_a_case_is_empty() -> None:
    none: Stream = Stream(st.nothing(), "")
    assert none.take(10) == [] and none.empty


def test_a_case_of_a_later_take_is_shrunk_to_the_dullest_that_fails() -> None:
    many = stream("a")
    many.take(10)
    case = next(c for c in many.take(10) if c.dtype == "bfloat16" and c["kv_heads"] == 2)
    asked: list[Case] = []

    def fails(tried: Case) -> bool:
        asked.append(tried)
        return tried["kv_heads"] == 2

    many.shrink(case, fails)
    assert asked[0] == case
    dullest = [c for c in asked if c["kv_heads"] == 2][-1]
    assert (dullest.dtype, dullest["heads"], dullest.seed) == ("float64", 4, 0)


def test_pairs_are_of_different_features() -> None:
    names = [name for name, _ in features(Case(dims={"n": 2}))]
    assert len(pairs(Case(dims={"n": 2}))) == len(list(combinations(names, 2)))
