"""`tpcheck replay`: a saved case from anywhere, forgotten when it passes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ranks.cli.commands import run


def test_a_case_from_another_folder_is_dumped_and_says_how_to_see_it_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.torch import load_file

    corpus = ["--corpus", "kept here"]
    assert run("verify", "checks.py::wrong", "--examples", "2", *corpus) == 1
    (saved,) = (folder / "kept here").glob("*.json")
    said = capsys.readouterr().out
    assert run("replay", saved.stem, "--dump", "dump", *corpus) == 1
    again = f"  reproduce      tpcheck replay {saved.stem} --corpus 'kept here'\n"
    assert again in said and again in capsys.readouterr().out
    expected = load_file(folder / "dump" / "expected.safetensors")
    ranks = [load_file(folder / "dump" / f"rank{r}.safetensors") for r in (0, 1)]
    total = sum(rank["output/output"].double() for rank in ranks)
    values = [t for name, t in expected.items() if name.startswith("value/0/")]
    assert any(t.shape == total.shape and bool((t - total).abs().max() < 1e-12) for t in values)


def test_a_saved_counterexample_is_replayed_first_and_forgotten_when_it_passes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", "checks.py::wrong", "--examples", "2") == 1
    (saved,) = (folder / ".tpcheck" / "corpus").glob("*.json")
    report = ["--json", "r.json"]
    assert run("verify", "checks.py::wrong", "--examples", "2", *report) == 1
    found = json.loads((folder / "r.json").read_text())["checks"][0]
    assert found["counterexample"]["id"] == saved.stem and found["examples"] == 1
    source = (
        (folder / "checks.py")
        .read_text()
        .replace("return partial", "return super().sum_output(partial)")
    )
    (folder / "checks.py").write_text(source)
    command = [sys.executable, "-m", "tpcheck", "verify", "checks.py::wrong", "--examples", "2"]
    fixed = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert not saved.exists()
