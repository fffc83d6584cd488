"""Choices of cases, changed and given back to Hypothesis, which draws cases by them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import Phase
from hypothesis.database import choices_from_bytes, choices_to_bytes

from tpcheck import Case, strategies
from tpcheck.fuzz.breeding import variants
from tpcheck.fuzz.shelf import Parent
from tpcheck.fuzz.steps import beside_steps
from tpcheck.search import drawing
from tpcheck.space import Space

CASES = strategies.kernel_cases(
    Space((1,)),
    {"rows": strategies.counts(), "width": strategies.widths()},
    ("contiguous", "offset"),
    ("normal", "shifted"),
)


def drawn(count: int) -> dict[Case, bytes]:
    found: dict[Case, bytes] = {}
    drawing.each(CASES, count, "k", lambda case: found.update({case: drawing.choices()}))
    return found


def draws(*entries: bytes) -> list[Case]:
    """The cases that Hypothesis draws by these choices."""
    found: list[Case] = []
    drawing.each(CASES, 50, "", found.append, phases=[Phase.reuse], database=drawing.Given(entries))
    return found


def test_the_choices_of_a_case_draw_it_again() -> None:
    cases = drawn(20)
    assert len(cases) > 5
    assert set(draws(*cases.values())) == set(cases)


def bred(parents: list[Parent], wanted: int, key: str, **counts: int) -> list[bytes]:
    return variants(parents, [], counts, Counter(), wanted, key)


def test_variants_draw_other_cases_that_have_something_of_their_parents() -> None:
    cases = drawn(20)
    parent = next(case for case in cases if case["rows"] == 67 or case["width"] > 32)
    near = draws(*variants([Parent(cases[parent])], [*cases.values()], {}, Counter(), 20, "v"))
    assert len(near) > 10
    alike = [case for case in near if {*case.dims.items()} & {*parent.dims.items()}]
    assert len(alike) > len(near) / 2


def test_variants_are_the_same_for_the_same_key() -> None:
    parents = [Parent(one) for one in drawn(10).values()]
    assert bred(parents, 8, "a") == bred(parents, 8, "a") != bred(parents, 8, "b")
    assert bred([], 8, "a") == [] == bred([Parent(b"\xff junk")], 8, "a")


def test_what_is_rare_has_more_children_until_it_had_as_many_as_others() -> None:
    common = Parent(choices_to_bytes([1, 2]), frozenset({"seen a", "seen both"}))
    rare = Parent(choices_to_bytes([3, 4]), frozenset({"seen b", "seen both"}))
    made: Counter[str] = Counter()
    counts = {"seen a": 40, "seen b": 1, "seen both": 100}
    variants([common, rare], [], counts, made, 10, "k")
    assert made["seen b"] > 3 * made["seen a"]
    variants([common, rare], [], counts, made := Counter({"seen b": 400}), 10, "k")
    assert made["seen b"] - 400 < made["seen a"]


def test_words_that_the_same_parents_show_count_as_one() -> None:
    one = Parent(choices_to_bytes([1, 2]), frozenset(f"seen {n}" for n in range(50)))
    other = Parent(choices_to_bytes([3, 4]), frozenset({"seen other"}))
    made: Counter[str] = Counter()
    variants([one, other], [], {}, made, 40, "k")
    assert 0.5 < made["seen other"] / made.total() * 2 < 1.5


def way(*choices: tuple[Any, ...]) -> list[Parent]:
    return [Parent(choices_to_bytes(one), frozenset({"seen way"})) for one in choices]


def children(parents: list[Parent], *others: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    pool = [choices_to_bytes(one) for one in others]
    made = variants(parents, pool, {}, Counter(), 200, "k")
    return [choices_from_bytes(one) or () for one in made]


def test_what_all_cases_of_a_way_share_is_mostly_kept_and_the_rest_drawn_anew() -> None:
    parents = way((7, True, 2), (9, True, 1), (3, True, 0), (4, True, 5))
    made = children(parents, *((n, False, n % 6) for n in range(20, 60)))
    assert 0.7 < sum(second for _, second, _ in made) / len(made) < 1
    assert sum(first >= 20 for first, _, _ in made) / len(made) > 0.3


def test_of_few_cases_any_choice_may_be_needed() -> None:
    parents = way((7, True, 2**40, 1), (9, True, 2**41, 2))
    pool = [(n, False, 2**42 + n, 3) for n in range(20, 400)]
    made = children(parents, *pool)
    for place in range(4):
        own = [parent[place] for parent in ((7, True, 2**40, 1), (9, True, 2**41, 2))]
        kept = sum(one[place] in own for one in made) / len(made)
        assert 0.4 < kept < 0.95, "children are distinct: those with all of it are one"


def test_sizes_that_are_equal_in_all_cases_of_a_way_become_another_together() -> None:
    parents = way((7, 7, True), (12, 12, True), (3, 3, False))
    made = children(parents, *((n, 60 - n, False) for n in range(17, 50)))
    assert all(one == other for one, other, _ in made)
    assert len({one for one, _, _ in made}) > 20


def test_sizes_lie_beside_multiples_of_powers_of_two() -> None:
    plain = [choices_to_bytes([n * 7 % 300, 2**40 + n, n % 3]) for n in range(200)]
    beside = [choices_from_bytes(one) for one in beside_steps(plain, "k")]
    first = [one[0] for one in beside if one is not None]
    of_64 = sum(n % 64 in (0, 1, 63) for n in first) / len(first)
    assert of_64 > 0.3 and max(first) <= 299
    assert [one and one[1:] for one in beside] == [(2**40 + n, n % 3) for n in range(200)], (
        "neither seeds nor small numbers"
    )


def test_of_words_that_the_same_parents_show_the_rarest_counts() -> None:
    for common in ("seen a", "seen z"):
        one = Parent(choices_to_bytes([100, 1]), frozenset({common, "seen m"}))
        other = Parent(choices_to_bytes([200, 2]), frozenset({"seen b"}))
        made: Counter[str] = Counter()
        variants([one, other], [], {common: 300, "seen m": 1, "seen b": 300}, made, 40, "k")
        assert made["seen m"] > 3 * made["seen b"]


def test_text_in_the_place_of_a_size_is_no_size() -> None:
    parents = way((40, "ab", 7), ("text", 40, 9), (33, 41, 2))
    pool = [(300, 200, n) for n in range(40)] + [("a", "b", 3)]
    assert children(parents, *pool)


def test_sizes_that_are_equal_in_the_only_parent_may_have_to_be() -> None:
    parent = Parent(choices_to_bytes([20, 20, 1]))
    others = [choices_to_bytes([n, n // 2, 1]) for n in range(24, 40)]
    made = [
        choices_from_bytes(c) or () for c in variants([parent], others, {}, Counter(), 200, "k")
    ]
    changed = [own for own in made if own[0] != 20]
    alike = sum(own[0] == own[1] for own in changed)
    assert len(changed) > 10 and 0.2 < alike / len(changed) < 0.9


def test_what_is_no_size_and_the_same_in_all_cases_of_a_way_is_not_tied() -> None:
    parents = way((1, 1, 7), (1, 1, 9), (1, 1, 3))
    made = children(parents, *((n % 2 + 2, n % 5 + 5, n) for n in range(20, 60)))
    assert any(one != 1 for one, _, _ in made) and any(other != 1 for _, other, _ in made)
    assert all(one != other or one == 1 for one, other, _ in made)


def test_the_one_that_is_another_than_before_is_what_equal_sizes_become() -> None:
    parents = way((7, 7, True), (12, 12, True), (3, 3, False))
    made = children(parents, *((7, n, False) for n in range(17, 50)))
    assert any(one == other > 16 for one, other, _ in made)
