"""`tpcheck replay`: a saved case from anywhere, forgotten when it passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import commands
from tests.ranks.cli.commands import CHECKS, run


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


@pytest.mark.sweep  # a launch, and a replay, are in each run
def test_what_a_launch_has_found_is_replayed_without_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", "checks.py::wrong", "--examples", "2") == 1
    (saved,) = (folder / ".tpcheck" / "corpus").glob("*.json")
    text = saved.read_text()
    assert '"engine": "gloo"' in text
    saved.write_text(text.replace('"engine": "gloo"', '"engine": "torchrun"'))
    assert run("replay", saved.stem) == 1
    # another check of its file has its own name
    assert run("replay", saved.stem, "--check", "checks.py::right") == 0
    assert "PASS  right " in capsys.readouterr().out


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
    fixed = commands.ran(["verify", "checks.py::wrong", "--examples", "2"], folder)
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert not saved.exists()


NARROWED = """
of_four = {"degrees": (4,)}
narrow = Check(specs.row_linear(), unreduced, overrides=of_four)
narrow_right = Check(specs.row_linear(), row, overrides=of_four)
narrow_refused = Check(
    specs.row_linear(), row, overrides={**of_four, "requires": lambda case: "not so"}
)
"""


@pytest.mark.sweep  # of verify it is in each run
def test_a_saved_case_that_its_spec_excludes_by_now_runs_and_a_note_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "checks.py").write_text(CHECKS + NARROWED)
    assert run("verify", "checks.py::wrong", "--examples", "1", "--tp", "2") == 1
    (saved,) = (folder / ".tpcheck" / "corpus").glob("*.json")

    def again(check: str, *more: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run("replay", saved.stem, "--check", f"checks.py::{check}", *more)
        return code, " ".join("".join(capsys.readouterr()).split())

    code, said = again("wrong")
    assert code == 1 and "excludes that now" not in said, "the twin: nothing is excluded"
    note = "tp=2, which is not one of 4: {} excludes that now, so tpcheck verify leaves this case"
    code, said = again("narrow")
    assert code == 1 and "identical to the saved evidence" in said
    assert f"note {note.format('narrow')}" in said
    code, said = again("narrow", "--script")
    assert code == 0 and "import torch" in said and note.format("narrow") in said
    code, said = again("narrow_right")
    assert code == 0 and "the saved case passes now" in said and note.format("narrow_right") in said
    code, said = again("narrow_refused")
    assert code == 2 and "not so" in said and note.format("narrow_refused") in said
