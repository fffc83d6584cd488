"""Choices of cases: kept, mixed, and given back to Hypothesis, which draws cases by them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import Phase
from hypothesis.database import choices_from_bytes, choices_to_bytes

from tpcheck import Case, strategies
from tpcheck.fuzz.shelf import KEPT, Shelf, variants
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


def test_variants_draw_other_cases_that_have_something_of_their_parents() -> None:
    cases = drawn(20)
    parent = next(case for case in cases if case["rows"] == 67 or case["width"] > 32)
    near = draws(*variants([cases[parent]], 20, "v"))
    assert near
    alike = [case for case in near if {*case.dims.items()} & {*parent.dims.items()}]
    assert len(alike) > len(near) / 2


def test_variants_are_the_same_for_the_same_key() -> None:
    parents = list(drawn(10).values())
    assert variants(parents, 8, "a") == variants(parents, 8, "a") != variants(parents, 8, "b")
    assert variants([], 8, "a") == [] == variants([b"\xff junk"], 8, "a")


def test_a_shelf_outlives_its_process_and_is_full_some_time(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    for number in range(KEPT + 5):
        shelf.keep("a.py::a", 2, choices_to_bytes([number]))
    kept = Shelf(tmp_path).parents("a.py::a", 2)
    assert len(kept) == KEPT and choices_to_bytes([KEPT + 4]) in kept
    assert shelf.parents("a.py::a", 4) == [] == shelf.parents("a.py::b", 2)


def test_by_which_choices_a_failing_case_was_drawn(tmp_path: Path) -> None:
    case, other = Case(seed=1), Case(seed=2)
    Shelf(tmp_path).note_failing("a.py::a", case, choices_to_bytes([1, True]))
    found = Shelf(tmp_path).of_failing("a.py::a", case)
    assert found is not None and choices_from_bytes(found) == (1, True)
    assert Shelf(tmp_path).of_failing("a.py::a", other) is None
