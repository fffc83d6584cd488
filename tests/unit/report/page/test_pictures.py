"""What the page draws: where cells, borders and collectives stand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.report.page.samples import FOUND
from tpcheck.report import as_json
from tpcheck.report.page import heat, timeline, views

MAP = as_json.counterexample(FOUND)["error_maps"][0]


@pytest.mark.parametrize(
    ("value", "level"),
    [(None, "none"), ("nan", "nan"), (0.0, "c0"), (1.0, "c1"), (1.01, "c2"), ("inf", "c7")],
)
def test_a_cell_is_wrong_from_its_bound_on(value: Any, level: str) -> None:
    assert heat.level(value) == level


def test_a_cell_says_where_it_is_and_whose() -> None:
    panel = heat.drawn(MAP)["panels"][0]
    said = [cell["said"] for cell in panel["cells"]]
    assert said[0] == "row 0, column 0: error 0.5 × its bound (rank 0)"
    assert said[3] == "row 0, column 3: error inf × its bound (rank 1)"
    assert said[5] == "row 1, column 1: not judged (rank 1)"
    assert panel["said"] == "4 of 8 cells beyond the bound"


def test_the_frames_of_shards_meet_without_a_gap() -> None:
    """Two blocks, each split over two ranks."""
    panel = heat.drawn(MAP)["panels"][0]
    frames = sorted((f["x"], f["width"], f["name"], f["height"]) for f in panel["borders"])
    side = panel["side"]
    assert [(x, name) for x, _, name, _ in frames] == [
        (heat.MARGIN + i * side, str(i % 2)) for i in range(4)
    ]
    assert {(width, height) for _, width, _, height in frames} == {(side, 2 * side)}


def test_a_cell_of_a_large_tensor_covers_all_that_fall_into_it() -> None:
    """Element e is in the cell e · count // size."""
    for size, count in ((100, 64), (64, 64), (7, 3)):
        for cell in range(count):
            first, last = heat._covered(cell, size, count)
            inside = [e for e in range(size) if e * count // size == cell]
            assert [first, last] == [inside[0], inside[-1]]


def test_many_cells_are_a_path_per_colour() -> None:
    cells = [[0.0] * 64 for _ in range(63)] + [[5.0] * 64]
    one = {**MAP, "panels": [{"ranks": [0], "cells": cells}]}
    panel = heat.drawn(one)["panels"][0]
    assert panel["cells"] == [] and {path["level"] for path in panel["paths"]} == {"c0", "c3"}
    assert sum(path["d"].count("M") for path in panel["paths"]) == 64 * 64


def test_the_code_that_is_listed_is_of_what_is_in_question() -> None:
    """The check's callables, the outermost module, where it is seen first, where the terms of the
    sum before come from, and the module of a tensor that the diagnosis names."""
    fates = ["agrees", "sum", "sum", "differs"]
    modules = ["in", "embed", "norm", "head"]
    rows = [
        {"module": m, "fate": fate, "phase": "forward"}
        for m, fate in zip(modules, fates, strict=True)
    ]
    code = dict.fromkeys(["", *modules, "mlp", "mlp.up", "load()"], "x")
    found = {
        "code": code,
        "boundaries": {"rows": rows, "first": 3},
        "diagnosis": {"message": "mlp.up.weight: is wrong; headless is not"},
        "first_divergence": None,
    }
    assert [name for name, _ in views._written(found)] == ["", "embed", "head", "mlp.up", "load()"]


def entry(said: str) -> timeline.Entry:
    return timeline.parsed(said)


WORLD = entry("all_reduce(sum) float64[2] over ranks 0,1,2,3 in forward at a.py:1")
LEFT = entry("all_gather float64 over ranks 0,1 in forward at a.py:2")
RIGHT = entry("all_gather float64 over ranks 2,3 in backward at a.py:2")
OTHER = entry("broadcast float64[2] over ranks 0,1 in forward at a.py:3")


def steps(of: dict[int, list[Any]]) -> list[tuple[list[int], bool]]:
    drawn = timeline.drawn(of, set())
    assert drawn is not None
    ranks = [sorted(r for names, _ in s["rows"] for r in names.split(", ")) for s in drawn["steps"]]
    return [([*map(int, r)], s["odd"]) for r, s in zip(ranks, drawn["steps"], strict=True)]


def test_what_ranks_entered_together_stands_in_one_column() -> None:
    of = {0: [LEFT, WORLD], 1: [LEFT, WORLD], 2: [RIGHT, RIGHT, WORLD], 3: [RIGHT, RIGHT, WORLD]}
    assert steps(of) == [
        ([0, 1], False), ([2, 3], False), ([2, 3], False), ([0, 1, 2, 3], False)
    ]  # fmt: skip


def test_a_rank_that_does_not_come_is_marked() -> None:
    assert steps({0: [], 1: [LEFT]}) == [([1], True)]
    assert steps({0: [LEFT], 1: [OTHER]}) == [([0, 1], True)]
    assert steps({0: [LEFT, WORLD], 1: [WORLD], 2: [WORLD], 3: [WORLD]})[0][1]


def test_a_rank_that_failed_shows_what_it_entered_last() -> None:
    failed = [{"rank": "1", "last": ["all_gather float64 over ranks 0,1 in forward at a.py:2"]}]
    given = {"events": [], "ranks": {"0": []}}
    of = timeline.lines(given, failed)
    assert of == {0: [], 1: [LEFT]}
    drawn = timeline.drawn(of, {1})
    assert drawn is not None and [row["failed"] for row in drawn["rows"]] == [False, True]
    assert drawn["boxes"][0]["letters"] == "AG" and drawn["boxes"][0]["odd"]


def test_no_rank_known_has_no_line() -> None:
    assert timeline.drawn({}, set()) is None
    drawn = timeline.drawn({0: [], 1: []}, set())
    assert drawn is not None and drawn["none"]
