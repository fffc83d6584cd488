"""The order in which cases are run: the same for a key, each once, pairs of features first."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from tpcheck import Case, specs
from tpcheck.search import drawing
from tpcheck.search.of_spec import cases_of
from tpcheck.search.stream import Stream, features, shows
from tpcheck.space import Space

FOUR = Space((4,))


def stream(key: str) -> Stream:
    return Stream(cases_of(specs.attention(), FOUR), key)


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
        ours += len(set().union(*map(shows, taken)))
        drawn = drawing.sample(cases_of(specs.attention(), FOUR), 10, key)
        chance += len(set().union(*map(shows, drawn)))
        replicas += 2 in {case["kv_heads"] for case in taken}
    assert ours > 1.1 * chance
    assert replicas >= 11, "K/V heads below the degree, and more than one"


def test_a_feature_is_a_kind_and_not_a_size() -> None:
    sizes = [dict(features(Case(dims={"n": n}, mesh={"tp": 4})))["n"] for n in (1, 3, 2, 4, 5, 8)]
    one, three, two, four, five, eight = sizes
    assert three == two
    assert len({one, two, four, five, eight}) == 5
    assert dict(features(Case(dims={"bias": True})))["bias"] is True


def test_a_stream_ends_with_its_cases() -> None:
    cases = [Case(seed=1), Case(seed=2), Case(seed=3)]
    few = Stream(st.sampled_from(cases), "")
    assert sorted(case.seed for case in few.take(10)) == [1, 2, 3]
    assert few.take(10) == [] and not few.empty


def test_all_listed_cases_are_run() -> None:
    cases = [Case({"n": n}, seed=n) for n in range(40)]
    taken: list[Case] = []
    few = Stream(st.sampled_from(cases), "", cases)
    while more := few.take(10):
        taken += more
    assert sorted(case.seed for case in taken) == list(range(40))


def test_what_was_left_out_on_the_way_is_no_reason_not_to_shrink_to_it() -> None:
    """Of sixteen cases nine fail, and the dullest that do are (1, 0, 0, 0) and (0, 1, 1, 0)."""
    flags = st.builds(
        lambda a, b, c, d: Case({"a": a, "b": b, "c": c, "d": d}), *[st.booleans()] * 4
    )
    for key in map(str, range(20)):
        every = Stream(flags, key)
        case = next(c for c in every.take(10) if c["a"] or (c["b"] and c["c"]))
        failed: list[Case] = []

        def fails(c: Case, failed: list[Case] = failed) -> bool:
            if c["a"] or (c["b"] and c["c"]):
                failed.append(c)
                return True
            return False

        every.shrink(case, fails)
        assert tuple(failed[-1].dims.values()) in {(1, 0, 0, 0), (0, 1, 1, 0)}, key


def test_a_case_that_does_not_come_again_does_not_keep_others_from_being_shrunk() -> None:
    numbers = st.integers(0, 99)
    changed = Stream(numbers.map(lambda n: Case({"n": n})), "a")
    (case, *_) = [c for c in changed.take(10) if c["n"] > 20]
    changed.strategy = numbers.map(lambda n: Case({"n": n, "other": True}))
    asked: list[Case] = []
    changed.shrink(case, lambda c: asked.append(c) or c["n"] > 20)  # type: ignore[func-returns-value]
    assert asked and min(c["n"] for c in asked if c["n"] > 20) == 21


def test_a_strategy_without_a_case_is_empty() -> None:
    none: Stream = Stream(st.nothing(), "")
    assert none.take(10) == [] and none.empty


def test_a_case_of_a_later_take_is_shrunk_to_the_dullest_that_fails() -> None:
    many = stream("a")
    many.take(10)
    case = next(c for c in many.take(10) if c["kv_heads"] == 2)
    asked: list[Case] = []

    def fails(tried: Case) -> bool:
        asked.append(tried)
        return tried["kv_heads"] == 2

    many.shrink(case, fails)
    dullest = [c for c in asked if c["kv_heads"] == 2][-1]
    assert (dullest.dtype, dullest["heads"], dullest.seed) == ("float64", 4, 0)


def test_features_have_different_names_and_sizes_are_compared_where_they_are_few() -> None:
    two, many = Case({"n": 2, "m": 2}), Case({f"n{i}": i for i in range(40)})
    for case in (two, many):
        names = [name for name, _ in features(case)]
        assert len(names) == len(set(names))
        assert len(shows(case)) == len(list(combinations(names, 2)))
    assert dict(features(two))["m = n"] is True
    assert len(shows(many)) < 2000


def test_cases_of_few_dims_are_not_starved() -> None:
    rich = {f"d{i}": 1 for i in range(9)}
    either = st.integers(1, 9).flatmap(
        lambda n: st.sampled_from([Case({"n": n}), Case({"n": n, **rich})])
    )
    for key in map(str, range(5)):
        taken = Stream(either, key).take(10)
        assert 2 <= sum(len(case.dims) == 1 for case in taken) <= 8


def test_what_ran_in_an_earlier_stream_is_not_taken_again() -> None:
    strategy = cases_of(specs.attention(), FOUR)
    before = set(Stream(strategy, "a").take(10))
    after = Stream(strategy, "a", past=before.__contains__).take(10)
    assert len(after) == 10 and not before & set(after)
    cases = [Case(seed=1), Case(seed=2)]
    done = Stream(st.sampled_from(cases), "", cases, past=lambda case: True)
    assert done.take(5) == [] and not done.empty, "there are cases, and they all ran"


def test_each_case_is_there_with_the_choices_that_draw_it() -> None:
    cases = stream("a")
    assert all(cases.choices[case] for case in cases.take(10))


def test_the_next_case_is_the_one_with_the_largest_share_of_news() -> None:
    waiting, shown = {case: shows(case) for case in drawing.sample(wide(), 40, "k")}, set[object]()
    taken = Stream(st.sampled_from(list(waiting)), "", list(waiting)).take(20)
    for case in taken:
        share = {one: len(of - shown) / len(of) for one, of in waiting.items()}
        assert share[case] == max(share.values())
        shown |= waiting.pop(case)
    assert len(taken) == 20


def wide() -> st.SearchStrategy[Case]:
    return cases_of(specs.attention(), FOUR)


def test_the_first_case_is_drawn_alone_and_the_order_is_that_of_any_number() -> None:
    for key in "abc":
        whole = stream(key)
        cases = whole.take(10) + whole.take(10)
        parts = stream(key)
        first = parts.take(1)
        assert parts.drawn == first
        assert first + parts.take(9) + parts.take(10) == cases
        assert set(parts.drawn) == set(whole.drawn)


def test_a_first_case_that_ran_before_does_not_end_a_stream() -> None:
    (first,) = stream("a").take(1)
    strategy = cases_of(specs.attention(), FOUR)
    again = Stream(strategy, "a", (), lambda case: case == first)
    taken = again.take(1) + again.take(9)
    assert len(taken) == 10 and first not in taken
