"""`tpcheck mutants`: what its exit code says, of matrices that were not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.mutants import MUTANTS, zero
from tests import ROOT
from tests.ranks.cli.commands import run
from tpcheck.cli import mutants
from tpcheck.errors import InvalidArgument
from tpcheck.figures.kills import Matrix, Row
from tpcheck.figures.rules import Against

HOME = ROOT / "fixtures" / "mutants"
ZERO = [mutant.name for mutant in zero.MUTANTS]
ODD = {"odd": "the reference raised X"}


def row(name: str, *, killed: bool, trouble: str | None = None) -> Row:
    return Row(name, killed, (), 1, 0.1, "", "shard-order", ("shard-order",), trouble=trouble)


def refuse() -> Against:
    raise InvalidArgument("no correct candidate to compare with")


@pytest.mark.parametrize(
    ("rows", "compare", "code", "said"),
    [
        ([row("a", killed=True)], Against, 0, ""),
        ([row("a", killed=True)], lambda: Against(troubled=ODD), 2, "odd: the reference raised X"),
        ([row("a", killed=True)], refuse, 2, "--against: no correct candidate"),
        ([row("a", killed=False)], lambda: Against(troubled=ODD), 1, ""),
        ([row("a", killed=False)], refuse, 1, ""),
        (
            [row("b", killed=False, trouble="raised")],
            lambda: Against(troubled=ODD),
            2,
            "b: raised (and 1 more)",
        ),
    ],
)
def test_what_can_not_run_is_said_unless_a_mutant_survived(
    rows: list[Row],
    compare: Any,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(mutants, "_collect", lambda targets: ([MUTANTS[0]], set()))
    monkeypatch.setattr(mutants, "_killed", lambda *given: Matrix(rows))
    monkeypatch.setattr(mutants, "_against", lambda *given: compare())
    assert run("mutants", "--against", "--json", str(tmp_path / "r.json")) == code
    assert said in capsys.readouterr().err
    data = json.loads((tmp_path / "r.json").read_text())
    assert compare is refuse or "troubled" in data["against"]


@pytest.mark.parametrize(
    ("targets", "chosen"),
    [
        (
            ["zero.py", "steps.py::optimizer_without_the_replicas_on_one_rank"],
            [*ZERO, "optimizer_without_the_replicas_on_one_rank"],
        ),
        (
            ["steps.py::optimizer_without_the_replicas_on_one_rank", "zero.py"],
            ["optimizer_without_the_replicas_on_one_rank", *ZERO],
        ),
        ([f"zero.py::{ZERO[0]}", "zero.py"], ZERO),
    ],
)
def test_a_name_chooses_of_its_own_file_alone(targets: list[str], chosen: list[str]) -> None:
    found, _ = mutants._collect([str(HOME / target) for target in targets])
    assert [mutant.name for mutant in found] == chosen


def test_a_name_that_is_not_there_is_told_beside_one_that_is() -> None:
    with pytest.raises(InvalidArgument, match=rf"no mutant .*did you mean '{ZERO[0]}'\?"):
        mutants._collect([str(HOME / "steps.py"), str(HOME / f"zero.py::{ZERO[0]}s")])
