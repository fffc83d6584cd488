"""Choices of cases, kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis.database import choices_from_bytes, choices_to_bytes

from tpcheck import Case
from tpcheck.fuzz.shelf import KEPT, PARENTS, Parent, Shelf


def one(number: int, *seen: str) -> Parent:
    return Parent(choices_to_bytes([number]), frozenset(seen))


def test_a_shelf_outlives_its_process(tmp_path: Path) -> None:
    parents = [one(1, "seen a", "seen b"), one(2)]
    assert Shelf(tmp_path).keep("a.py::a", 2, parents, {}) == parents
    assert Shelf(tmp_path).parents("a.py::a", 2) == parents
    assert Shelf(tmp_path).parents("a.py::a", 4) == [] == Shelf(tmp_path).parents("a.py::b", 2)


def test_of_a_full_shelf_the_most_common_goes(tmp_path: Path) -> None:
    shelf, counts = Shelf(tmp_path), {f"seen {number}": number for number in range(KEPT + 5)}
    counts["seen by all"] = KEPT + 5
    shelf.keep("a.py::a", 2, [one(number) for number in range(500, 500 + KEPT)], counts)
    for number in range(KEPT + 5):
        shelf.keep("a.py::a", 2, [one(number, f"seen {number}", "seen by all")], counts)
    kept = {parent.often(counts) for parent in shelf.parents("a.py::a", 2)}
    assert kept == {*range(KEPT)}, "those of which nothing is known are the first to go"


def test_what_is_there_takes_no_place_and_is_known_by_what_it_showed_last(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    parents = [one(number, f"seen {number}") for number in range(KEPT)]
    shelf.keep("a.py::a", 2, parents, {})
    files = sum(1 for _ in tmp_path.rglob("*"))
    again = [*parents[1:], one(0, "seen otherwise")]
    assert set(shelf.keep("a.py::a", 2, again, {})) == {*again}
    assert set(shelf.parents("a.py::a", 2)) == {*again}
    assert sum(1 for _ in tmp_path.rglob("*")) == files


@pytest.mark.parametrize("garbled", [b"[", b'[1, "seen a"]', b"", b"5", b'{"seen b": 1}'])
def test_what_can_not_be_read_of_a_shelf_is_not_known(tmp_path: Path, garbled: bytes) -> None:
    shelf = Shelf(tmp_path)
    shelf.keep("a.py::a", 1, [one(1, "seen b")], {})
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.read_bytes().startswith(b"["):
            file.write_bytes(garbled)
    (parent,) = shelf.parents("a.py::a", 1)
    assert parent.choices == one(1).choices and parent.seen <= {"seen a"}


def test_by_which_choices_a_failing_case_was_drawn(tmp_path: Path) -> None:
    case, other = Case(seed=1), Case(seed=2)
    Shelf(tmp_path).note_failing("a.py::a", case, choices_to_bytes([1, True]))
    found = Shelf(tmp_path).of_failing("a.py::a", case)
    assert found is not None and choices_from_bytes(found) == (1, True)
    assert Shelf(tmp_path).of_failing("a.py::a", other) is None


def test_of_many_with_one_way_those_stay_that_differ_most(tmp_path: Path) -> None:
    shelf, counts = Shelf(tmp_path), {"seen a": 9, "seen b": 1}
    kin = [Parent(choices_to_bytes([7, 7, n]), frozenset({"seen a"})) for n in range(PARENTS)]
    like_them = Parent(choices_to_bytes([7, 7, 0, 5]), frozenset({"seen a"}))
    otherwise = Parent(choices_to_bytes([1, 2, 3]), frozenset({"seen a"}))
    rarer = Parent(choices_to_bytes([7, 7, 1, 5]), frozenset({"seen a", "seen b"}))
    assert {*shelf.keep("a.py::a", 2, kin, counts)} == {*kin}
    assert {*shelf.keep("a.py::a", 2, [like_them], counts)} == {*kin}, "it shows nothing new"
    kept = shelf.keep("a.py::a", 2, [otherwise], counts)
    assert len(kept) == PARENTS and otherwise in kept
    assert kept == shelf.parents("a.py::a", 2)
    assert rarer in shelf.keep("a.py::a", 2, [rarer], counts), "what it shows has room"
