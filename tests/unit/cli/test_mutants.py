"""`tpcheck mutants`: what its exit code says, of matrices that were not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.mutants import MUTANTS
from tests.ranks.cli.commands import run
from tpcheck.cli import mutants
from tpcheck.errors import InvalidArgument
from tpcheck.figures.kills import Matrix, Row
from tpcheck.figures.rules import Against

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
