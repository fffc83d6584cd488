"""Where an example's time goes: every part is measured, and they make up the whole."""

from __future__ import annotations

import contextlib
import statistics
import types
from dataclasses import replace

import pytest

from tests import candidates
from tests.candidates import CASE, Row
from tpcheck.bench import grid, spans
from tpcheck.bench.grid import Grid
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner


def test_the_parts_of_an_example_make_up_the_whole(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(candidates.check(Row), gloo)
    runner.run(replace(CASE, seed=1))  # the ranks know the candidate then
    looks: list[float] = []

    def clock() -> float:
        looks.append(float(len(looks)))  # each look takes a second
        return looks[-1]

    monkeypatch.setattr(spans, "time", types.SimpleNamespace(perf_counter=clock))
    parts = spans.time_line(runner, CASE)
    assert tuple(parts) == spans.PARTS
    assert sum(parts.values()) == pytest.approx(len(looks) - 1)
    assert parts[spans.SAVE] == 1.0 and parts[spans.STATE] > 0.0
    once = {spans.REFERENCE, spans.OWN, spans.SPREAD, spans.RANK, spans.JUDGE}
    assert all(parts[part] > 0.0 for part in once), parts


def test_a_cell_is_measured_beside_the_bare_loop(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "Engine", lambda *_, **__: contextlib.nullcontext(gloo))
    told: list[grid.Cell] = []
    small = Grid(sizes=(4,), degrees=(2,), dtypes=("float32",), engines=("gloo",), laps=2)
    (cell,) = grid.measure(small, told.append)
    assert told == [cell] and (cell.engine, cell.tp, cell.hidden) == ("gloo", 2, 4)
    assert len(cell.laps) == len(cell.bare) == 2 and min(cell.laps + cell.bare) > 0
    assert cell.spent[spans.OWN] > 0, "no case is posed before its time line is taken"
    assert cell.ratio == pytest.approx(statistics.median(cell.laps) / statistics.median(cell.bare))
