"""A campaign's state file: figures of other bounds or draws don't mix, a cut line is cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpcheck.calibrate.state import Grid, State
from tpcheck.errors import InvalidArgument
from tpcheck.figures.alarms import Unit

GRID = Grid(degrees=(1, 2), dtypes=("float32", "float16"))


def test_figures_of_other_bounds_or_grids_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    State(path, GRID)
    with pytest.raises(InvalidArgument, match="other degrees, seed"):
        State(path, Grid(degrees=(2,), dtypes=GRID.dtypes, seed=1))
    monkeypatch.setattr("tpcheck.calibrate.state.digest_of_bounds", lambda: "other")
    with pytest.raises(InvalidArgument, match="other bounds"):
        State(path, GRID)
    path.write_text("no JSON\n")
    with pytest.raises(InvalidArgument, match="is not a campaign state file"):
        State(path, GRID)
    path.write_text(json.dumps([1]) + "\n")
    with pytest.raises(InvalidArgument, match="with other"):
        State(path, GRID)


def test_a_unit_is_on_disk_at_once_and_a_line_that_was_cut_short_is_dropped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "deep" / "state"
    unit = Unit("row", 2, "float32", 0, [0.25, 0.5], ["7f3a91"], undecided=1, known=2)
    State(path, GRID).add(unit)
    with path.open("a") as file:
        file.write('{"check": "row')  # killed while writing
    for _ in range(2):
        assert State(path, GRID).units == {unit.key: unit}
    assert path.read_text().count("\n") == 2
