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
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT, commands
from tests.commands import environment
from tests.ranks.cli.test_deaths import children, mark_of

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


def by_torchrun(folder: Path, words: list[str]) -> int:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    torchrun += [f"--master-port={port()}", "-m", "tpcheck", *words]
    launched = subprocess.run(
        torchrun, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300
    )
    return launched.returncode


def as_slurm(folder: Path, words: list[str]) -> int:
    return max(commands.ended(process, 300) for process in processes(folder, words))


@pytest.mark.parametrize("launched", [as_slurm, pytest.param(by_torchrun, marks=pytest.mark.sweep)])
def test_they_say_what_gloos_do(folder: Path, launched: Callable[[Path, list[str]], int]) -> None:
    words = ["verify", "checks.py", *ASKED]
    many = [*words, "--engine", "torchrun", "--json", "launched.json", "--corpus", "launched"]
    assert launched(folder, many) == 1
    one = [*words, "--ranks", "2", "--json", "alone.json", "--corpus", "alone"]
    assert commands.ran(one, folder).returncode == 1
    found = checks(folder / "launched.json")
    assert found == checks(folder / "alone.json")
    assert [verdict for _, verdict, *_ in found] == ["PASS", "PASS", "FAIL", "FAIL", "FAIL", "PASS"]
    told = {name: about for name, *_, about in found}
    assert told["killed"][3] == [("crash", 1)] and told["gathers"][0] == "collective-mismatch"


def processes(folder: Path, words: list[str]) -> list[ForkServerProcess]:
    """Two, as Slurm starts them: the store is rank 0's own."""
    told = {"SLURM_NTASKS": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port())}
    return [
        commands.started(words, folder, more=told | {"SLURM_PROCID": str(rank)})
        for rank in range(2)
    ]


def runs_a_case(folder: Path, _: int) -> bool:
    return (folder / "ran").exists()


def starts_a_rank(_: Path, process: int) -> bool:
    """Whether the process has asked for one: it has begun what ranks are forked from."""
    return any(map(mark_of, children(process)))


@pytest.mark.parametrize(
    "moment", [runs_a_case, pytest.param(starts_a_rank, marks=pytest.mark.sweep)]
)
def test_a_process_that_is_gone_leaves_the_rest_unknown(
    folder: Path, moment: Callable[[Path, int], bool]
) -> None:
    words = ["verify", "checks.py::notes", "checks.py::right", "--engine", "torchrun", "--tp", "2"]
    words += ["--examples", "100000", "--time-limit", "2", "--json", "report.json"]
    first, second = processes(folder, words)
    assert second.pid is not None
    try:
        kept = folder / ".tpcheck"
        deadline = time.monotonic() + 300
        while not moment(folder, second.pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(second.pid, signal.SIGSTOP)  # as a machine that is cut off
        assert commands.ended(first, 300) == 3
        assert not list(kept.glob("corpus/*.json"))
        report = json.loads((folder / "report.json").read_text())
        told = [(check["verdict"], check["reason"]) for check in report["checks"]]
        assert [verdict for verdict, _ in told] == ["UNKNOWN", "UNKNOWN"], told
        assert all("no longer answers" in reason for _, reason in told), told
    finally:
        for process in (first, second):
            process.kill()
            process.join()


def test_a_launcher_that_is_not_told_of_is_refused(folder: Path) -> None:
    told = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "0"}
    done = commands.ran(["verify", "checks.py"], folder, told)
    assert done.returncode == 2
    assert "give --engine torchrun" in done.stderr and len(done.stderr.splitlines()) == 1


def test_without_a_launcher_it_is_refused(folder: Path) -> None:
    done = commands.ran(["verify", "checks.py", "--engine", "torchrun"], folder)
    assert done.returncode == 2
    assert "needs a launcher" in done.stderr and len(done.stderr.splitlines()) == 1
    assert str(ROOT) not in done.stderr
