"""Ranks that a launcher has started: what gloo's say, and where a machine is gone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.commands import environment

CHECKS = """
import os, signal
import torch
import torch.distributed as dist
from fixtures.parallel.linear import RowLinear
from tests.candidates import check

class NoSum(RowLinear):
    def sum_output(self, partial):
        return partial

class Killed(RowLinear):
    def sum_output(self, partial):
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().sum_output(partial)

class Gathers(RowLinear):
    def sum_output(self, partial):
        if self.rank == 0:
            return super().sum_output(partial)
        parts = [torch.empty_like(partial) for _ in range(2)]
        dist.all_gather(parts, partial.contiguous(), group=self.group)
        return sum(parts)

class Notes(RowLinear):
    def sum_output(self, partial):
        open("ran", "w").close()
        return super().sum_output(partial)

right = check(RowLinear).named("right")
notes = check(Notes).named("notes")
wrong = check(NoSum).named("wrong")
killed = check(Killed).named("killed")
gathers = check(Gathers).named("gathers")
after = check(RowLinear).named("after")
"""
ASKED = ["--tp", "2", "--examples", "4", "--time-limit", "4"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "checks.py").write_text(CHECKS)
    return tmp_path


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tpcheck", "verify", "checks.py", *words]


def checks(file: Path) -> list[tuple[Any, ...]]:
    """Of each check all but its seconds and its engine."""
    found = []
    for check in json.loads(file.read_text())["checks"]:
        example = check["counterexample"]
        told = example and (
            example["id"],
            example["case"],
            example["diagnosis"]["code"],
            [(m["kind"], m["rank"]) for m in example["mismatches"]],
        )
        if check["name"] == "gathers":  # which of two ranks sees that they differ is open
            told = example["diagnosis"]["code"], example["case"]
        found.append((check["name"], check["verdict"], check["examples"], told))
    return found


def test_they_say_what_gloos_do(folder: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    torchrun += [f"--master-port={port()}", *command(*ASKED)[1:], "--engine", "torchrun"]
    torchrun += ["--json", "launched.json", "--corpus", "launched"]
    launched = subprocess.run(
        torchrun, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300
    )
    alone = subprocess.run(
        command(*ASKED, "--ranks", "2", "--json", "alone.json", "--corpus", "alone"),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (launched.returncode, alone.returncode) == (1, 1), launched.stderr
    found = checks(folder / "launched.json")
    assert found == checks(folder / "alone.json")
    assert [verdict for _, verdict, *_ in found] == ["PASS", "PASS", "FAIL", "FAIL", "FAIL", "PASS"]
    told = {name: about for name, *_, about in found}
    assert told["killed"][3] == [("crash", 1)] and told["gathers"][0] == "collective-mismatch"


def processes(folder: Path, count: int) -> list[subprocess.Popen[str]]:
    """As Slurm starts them: the store is rank 0's own."""
    told = {"SLURM_NTASKS": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port())}
    words = ["--engine", "torchrun", "--tp", "2", "--examples", "100000"]
    words += ["--time-limit", "2", "--json", "report.json"]
    return [
        subprocess.Popen(
            [*command()[:-1], "checks.py::notes", "checks.py::right", *words],
            cwd=folder,
            env=environment() | told | {"SLURM_PROCID": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]


def runs_a_case(folder: Path, _: int) -> bool:
    return (folder / "ran").exists()


def starts_a_rank(_: Path, process: int) -> bool:
    """Whether the process has asked for one: it has begun what ranks are forked from."""
    return bool(Path(f"/proc/{process}/task/{process}/children").read_text())


@pytest.mark.parametrize("moment", [runs_a_case, starts_a_rank])
def test_a_process_that_is_gone_leaves_the_rest_unknown(
    folder: Path, moment: Callable[[Path, int], bool]
) -> None:
    first, second = processes(folder, 2)
    try:
        kept = folder / ".tpcheck"
        deadline = time.monotonic() + 300
        while not moment(folder, second.pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(second.pid, signal.SIGSTOP)  # as a machine that is cut off
        said, _ = first.communicate(timeout=300)
        assert first.returncode == 3, said
        assert not list(kept.glob("corpus/*.json"))
        report = json.loads((folder / "report.json").read_text())
        told = [(check["verdict"], check["reason"]) for check in report["checks"]]
        assert [verdict for verdict, _ in told] == ["UNKNOWN", "UNKNOWN"], told
        assert all("no longer answers" in reason for _, reason in told), told
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


def test_a_launcher_that_is_not_told_of_is_refused(folder: Path) -> None:
    told = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "0"}
    done = subprocess.run(
        command(), cwd=folder, env=environment() | told, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "give --engine torchrun" in done.stderr and len(done.stderr.splitlines()) == 1


def test_without_a_launcher_it_is_refused(folder: Path) -> None:
    done = subprocess.run(
        command("--engine", "torchrun"),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "needs a launcher" in done.stderr and len(done.stderr.splitlines()) == 1
    assert str(ROOT) not in done.stderr
