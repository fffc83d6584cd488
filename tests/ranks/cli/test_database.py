"""`--database`: what one process finds, another runs first."""

from __future__ import annotations

import json
from pathlib import Path

from tests import commands
from tests.ranks.cli.commands import CHECKS

WRONG = ["checks.py::wrong", "--tp", "2", "--database", "../db", "--json", "r.json"]


def test_two_processes_with_one_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "checks.py").write_text(CHECKS)
    one, two = tmp_path / "one", tmp_path / "two"
    assert commands.tpcheck(["fuzz", *WRONG, "--turns", "1", "--jobs", "1"], one)[0] == 1
    (finding,) = json.loads((one / "r.json").read_text())["findings"]
    code, printed = commands.tpcheck(["verify", *WRONG, "--examples", "1"], two)
    assert code == 1, printed
    (check,) = json.loads((two / "r.json").read_text())["checks"]
    assert check["counterexample"]["found_after"] == 0, "it was not drawn"
    assert check["counterexample"]["case"] == finding["case"]
    assert (two / ".tpcheck" / "corpus" / f"{finding['id']}.json").exists()
    # what passes is taken out, for others, too
    (two / "checks.py").write_text(
        CHECKS.replace("return partial", "return super().sum_output(partial)")
    )
    assert commands.tpcheck(["verify", *WRONG, "--examples", "1"], two)[0] == 0
    assert [path for path in (tmp_path / "db").glob("*/*") if path.parent.name != "metakeys"] == []
