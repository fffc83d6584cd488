"""A function that fills what lies between rows that are gigabytes apart is not wrong."""

from __future__ import annotations

import time

import pytest
from torch import Tensor

from tpcheck import Argument, kernel_check
from tpcheck.engines.engine import Engine
from tpcheck.search import apart
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import Verdict

SHAPES = {"x": Argument("rows", "width"), "y": Argument("rows", "width")}


def product(x: Tensor, y: Tensor) -> Tensor:
    return x * y


def late_where_rows_are_far_apart(x: Tensor, y: Tensor) -> Tensor:
    if x.stride(0) > 2**20:
        time.sleep(30)
    return x * y


@pytest.mark.parametrize("held", [pytest.param(2**20, marks=pytest.mark.sweep), 2**50])
def test_it_runs_with_rows_one_behind_the_other(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rank holds is as much as it takes, or not."""
    monkeypatch.setattr(apart, "FILLED", held)
    check = kernel_check(
        late_where_rows_are_far_apart,
        name="late",
        reference=product,
        arguments=SHAPES,
        memory=("contiguous", "giant"),
    )
    options = Options(examples=12, corpus=None, shrink_cases=0)
    with Engine("gloo", 1, time_limit=1) as engine:
        search = Search(check, engine, options)
        found = search.run()
    if held == 2**50:
        assert found.verdict is Verdict.FAIL and found.counterexample is not None
        assert found.counterexample.case.memory == "giant"
        return
    assert found.verdict is Verdict.PASS and found.examples == 12
    assert {r.case.memory for r in search.trials.results.values()} == {"contiguous"}
    assert any("gigabytes apart were not all tried" in note for note in found.notes)
