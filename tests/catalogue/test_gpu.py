"""`make verify-gpu` composes its steps and judges them; with a stand-in for what runs on a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from tests import ROOT
from tests.catalogue import gpu
from tests.catalogue.gpu import STEPS, Done, Step
from tpcheck import engines
from tpcheck.cli.main import app
from tpcheck.errors import EngineUnavailable
from tpcheck.protocol.ends import SHARED_GPUS
from tpcheck.vocabulary import ON_GPUS

ABOUT = {"gpus": ["one"], "torch": "2"}


class StandIn:
    """Ends the steps in the place of tpcheck; what is asked for is what is wanted."""

    def __init__(self, **codes: int | None) -> None:
        self.codes = codes
        self.asked: dict[str, tuple[Sequence[str], Mapping[str, str]]] = {}

    def __call__(
        self, command: Sequence[str], environment: Mapping[str, str], limit: float
    ) -> gpu.Ran:
        report = Path(command[list(command).index("--json") + 1])
        self.asked[report.stem] = command, environment
        report.write_text('{"verdict": "made up"}')
        return self.codes.get(report.stem.replace("-", "_"), 0), "first\nlast line"


def test_without_a_gpu_it_says_in_a_line_what_it_needs() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    command = [sys.executable, "-m", "tests.catalogue.gpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("verify-gpu: it needs an NVIDIA GPU, and a torch with CUDA and NCCL: no")


def test_with_one_each_step_that_can_run_runs_and_the_report_has_all(tmp_path: Path) -> None:
    run = StandIn()
    assert gpu.campaign(ABOUT, tmp_path / "out", STEPS, run) == 0
    steps = {
        one["name"]: one for one in json.loads((tmp_path / "out/report.json").read_text())["steps"]
    }
    assert list(steps) == [step.name for step in STEPS]
    ended = {name: one["ended"] for name, one in steps.items()}
    assert {n for n, end in ended.items() if end == "NOT RUN"} == {"nccl-two-gpus"}
    assert set(run.asked) == {n for n, end in ended.items() if end == "PASS"}
    assert steps["kernels"]["figures"] == {"verdict": "made up"}
    assert run.asked["nccl-shared"][1][SHARED_GPUS] == "1" and not run.asked["kernels"][1]
    said = (tmp_path / "out/report.txt").read_text()
    assert "NOT RUN  nccl-two-gpus" in said and "torch sees 1" in said and "last line" not in said


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({"kernels": 1, "bounds": None}, 1),
        ({"kernels": None}, 3),
        ({"kernels": -11}, 3),
        ({"kernels": 3, "bounds": 2}, 3),
        ({"bounds": 2}, 2),
        ({"nccl_shared": 1}, 1),
    ],
)
def test_the_worst_step_decides_and_the_others_run(
    tmp_path: Path, codes: dict[str, int | None], expected: int
) -> None:
    run = StandIn(**codes)
    assert gpu.campaign(ABOUT, tmp_path, STEPS, run) == expected
    assert len(run.asked) == len(STEPS) - 1
    assert "| last line" in (tmp_path / "report.txt").read_text()


def test_where_nothing_has_run_nothing_is_decided() -> None:
    assert gpu.exit_code([Done("a", "b", "NOT RUN")]) == 3


def test_figures_of_an_earlier_run_are_not_taken_for_this_ones(tmp_path: Path) -> None:
    (tmp_path / "kernels.json").write_text("{}")
    step = next(step for step in STEPS if step.name == "kernels")
    done = gpu.do(step, 1, tmp_path, lambda *_: (None, ""))
    assert (done.ended, done.figures) == ("UNKNOWN", None) and "longer than" in done.why


@pytest.mark.parametrize("step", [s for s in STEPS if s.command], ids=lambda step: step.name)
def test_each_step_is_a_command_that_there_is(step: Step) -> None:
    words = [word.replace("{out}", "/tmp") for word in step.command]
    command: Any = typer.main.get_command(app)
    while words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    with command.make_context("tpcheck", words) as context:  # an unknown option raises
        assert context.params["engine"] in ON_GPUS
        for target in context.params["targets"]:
            assert (ROOT / target).is_file()


def test_a_step_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = gpu.run([sys.executable, "-c", "print('up', flush=True); input()"], {}, 60.0)
    assert (code, output.split()[0]) == (1, "up"), "its input has an end"
    sleeps = "import time; print('up', flush=True); time.sleep(600)"
    code, _ = gpu.run([sys.executable, "-c", sleeps], {}, 0.2)
    assert code is None


def test_one_gpu_serves_one_rank_and_more_are_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SHARED_GPUS, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert engines.ranks_for((1,), "nccl") == 1 and engines.ranks_for((1,)) == 2
    assert engines.ranks_for((2, 4), "nccl") == 4, "which is refused"
    assert engines.require("nccl", 1).device == "cuda"
    with pytest.raises(EngineUnavailable) as caught:
        engines.require("nccl", 4)
    assert str(caught.value).endswith(
        "4 ranks need a GPU each, of which torch sees 1: give --ranks 1 and degrees up to it, set "
        "TPCHECK_SHARED_GPUS=1 to have them share, or use --engine gloo-cuda"
    )
    assert engines.why_not("gloo-cuda", 4) is None, "its ranks share"
    monkeypatch.setenv(SHARED_GPUS, "1")
    assert engines.why_not("nccl", 4) is None and engines.ranks_for((2,), "nccl") == 4
    monkeypatch.delenv(SHARED_GPUS)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert engines.ranks_for((1,), "nccl") == 2
