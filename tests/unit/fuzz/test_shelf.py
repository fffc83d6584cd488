"""Choices of cases, kept."""

from __future__ import annotations

from pathlib import Path

from hypothesis.database import choices_from_bytes, choices_to_bytes

from tpcheck import Case
from tpcheck.fuzz.shelf import KEPT, Parent, Shelf


def test_a_shelf_outlives_its_process(tmp_path: Path) -> None:
    parent = Parent(choices_to_bytes([1]), frozenset({"seen a", "seen b"}))
    Shelf(tmp_path).keep("a.py::a", 2, parent, {})
    assert Shelf(tmp_path).parents("a.py::a", 2) == [parent]
    assert Shelf(tmp_path).parents("a.py::a", 4) == [] == Shelf(tmp_path).parents("a.py::b", 2)


def test_of_a_full_shelf_the_most_common_goes(tmp_path: Path) -> None:
    shelf, counts = Shelf(tmp_path), {f"seen {number}": number for number in range(KEPT + 5)}
    for number in range(KEPT + 5):
        seen = frozenset({f"seen {number}", "seen by all"})
        counts["seen by all"] = KEPT + 5
        shelf.keep("a.py::a", 2, Parent(choices_to_bytes([number]), seen), counts)
    kept = {one.often(counts) for one in shelf.parents("a.py::a", 2)}
    assert kept == {*range(KEPT - 1), KEPT + 4}, "the newest is kept"


def test_what_can_not_be_read_of_a_shelf_is_not_known(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.keep("a.py::a", 1, Parent(b"one", frozenset({"seen a"})), {})
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.read_bytes().startswith(b"["):
            file.write_bytes(b"[")
    assert shelf.parents("a.py::a", 1) == [Parent(b"one")]


def test_by_which_choices_a_failing_case_was_drawn(tmp_path: Path) -> None:
    case, other = Case(seed=1), Case(seed=2)
    Shelf(tmp_path).note_failing("a.py::a", case, choices_to_bytes([1, True]))
    found = Shelf(tmp_path).of_failing("a.py::a", case)
    assert found is not None and choices_from_bytes(found) == (1, True)
    assert Shelf(tmp_path).of_failing("a.py::a", other) is None
