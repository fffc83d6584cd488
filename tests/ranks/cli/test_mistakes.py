"""One clear line for each user's mistake, and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ranks.cli.commands import complaint, run

#: Checks with a mistake of their own → what is said of it.
MISTAKEN = {
    "heads": "weight (12, 12): heads=6 is not divisible by tp=4",
    "attention_case": "heads=6 is not divisible by tp=4",
    "missing": "'wieght', which the reference does not have (did you mean 'weight'",
    "unsplittable": "size 5 is not divisible by tp=2",
    "no_such_dim": "names dim 3 of a tensor of shape (4, 4)",
    "too_large": "a listed case needs 8 ranks",
    "budget_of_three": "budget(case) returned a int, not a Budget",
}


def test_the_mistakes_of_checks_are_one_line_each(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", *(f"checks.py::{name}" for name in MISTAKEN)) == 2
    out, err = capsys.readouterr()
    lines = [line for line in out.splitlines() if line.startswith("UNKNOWN  ")]
    for (name, said), line in zip(MISTAKEN.items(), lines, strict=False):
        assert line.startswith(f"UNKNOWN  {name}: ") and said in line
    assert len(lines) == len(MISTAKEN) + 1, "and the summary"
    assert err.startswith("tpcheck: heads: ") and "(and 6 more checks)" in err
    assert len(err.splitlines()) == 1 and "Traceback" not in out


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_file_that_does_not_import_costs_no_other_its_verdict(
    folder: Path, capsys: pytest.CaptureFixture[str], jobs: str
) -> None:
    (folder / "broken.py").write_text("import os\n\nimport nothing_like_it\n")
    (folder / "syntax.py").write_text("x = 1\ndef f(:\n")
    targets = ["./broken.py::any", "checks.py::right", "syntax.py"]
    options = ["--examples", "2", "--jobs", jobs, "--json", "out.json", "--github"]
    assert run("verify", *targets, *options) == 2
    out, err = capsys.readouterr()
    checks = json.loads((folder / "out.json").read_text())["checks"]
    verdicts = [(check["name"], check["verdict"]) for check in checks]
    assert sorted(verdicts) == [
        ("broken.py", "UNKNOWN"),
        ("right", "PASS"),
        ("syntax.py", "UNKNOWN"),
    ]
    assert "No module named 'nothing_like_it' (line 3)" in checks[0]["reason"]
    assert "::warning file=broken.py,line=3," in out and "file=syntax.py,line=2," in out
    assert "(and 1 more check)" in err


def test_user_mistakes_are_one_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        return complaint(capsys, *arguments)

    assert "did you mean 'wrong'" in said("verify", "checks.py::wrnog")
    assert "no such file or folder: gone.py" in said("verify", "gone.py")
    (folder / "broken.py").write_text("import nothing_like_it\n")
    assert "broken.py does not import: ModuleNotFoundError" in said("verify", "broken.py")
    (folder / "syntax.py").write_text("def f(:\n")
    assert "syntax.py does not import: SyntaxError" in said("verify", "syntax.py")
    (folder / "quits.py").write_text("import os\nos._exit(0)\n")
    assert "quits.py does not import: SystemExit: 0 (line 2)" in said("verify", "quits.py")
    (folder / "empty.py").write_text("x = 1\n")
    assert "no Check found in empty.py" in said("verify", "empty.py")
    (folder / "x.json").write_text('{"checks": []}')
    assert said("verify", "x.json").startswith("tpcheck: x.json is not a Python file: give")
    assert said("replay", "x.json").startswith("tpcheck: x.json is a report, not a saved case")
    assert "--ranks 8" in said("verify", "checks.py::right", "--tp", "8", "--ranks", "4")
    assert "no CUDA device" in said("verify", "checks.py::right", "--engine", "nccl")
    assert said("doctor", "--ranks", "65") == "tpcheck: --ranks 65: give 1 to 64"
    assert "'glue' is not one of" in said("verify", "checks.py::right", "--engine", "glue")
    assert "'float31' is not one of" in said("verify", "checks.py::right", "--dtype", "float31")
    assert "tp degree 0 is not" in said("verify", "checks.py::right", "--tp", "0")
    assert "tp degree -2 is not" in said("verify", "checks.py::right", "--tp", "2,-2")
    assert "--tp 'two'" in said("verify", "checks.py::right", "--tp", "two")
    assert "--time-budget 'soon'" in said("verify", "checks.py::right", "--time-budget", "soon")
    for option, value in (("--examples", "0"), ("--ranks", "0"), ("--seed", "-1")):
        assert f"'{option}'" in said("verify", "checks.py::right", option, value)
    assert "give a file in a writable folder" in said("verify", "checks.py::right", "--json", ".")
    assert "can't keep cases in checks.py" in said("verify", "gone.py", "--corpus", "checks.py")
    assert "can't keep cases" in said("verify", "gone.py", "--corpus", "checks.py/below/it")
    assert "can't keep cases" in said("calibrate", "alarms", "gone.py", "--corpus", "checks.py")
    assert "can't write the report" in said("verify", "gone.py", "--json", "checks.py/r.json")
    assert "an empty name was given" in said("verify", "")
    assert "an empty name was given" in said("mutants", "::right")
    assert "No such option" in said("verify", "--exmaples", "3")
    assert "no saved case" in said("replay", "abcdef")
    (folder / "bad.json").write_text('{"schema_version": 1, "case": {"dims"')
    assert "corrupt case file bad.json" in said("replay", "bad.json")
