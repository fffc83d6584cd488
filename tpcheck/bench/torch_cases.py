"""The same check under torch's own test classes: what `python -m` runs in a process of its own.

    python -m tpcheck.bench.torch_cases MultiProcContinuousTest 10

prints one line of JSON: seconds until all ranks have met, and seconds of each test. The degree
and a folder come in the environment, since spawned ranks import this module anew.
"""

from __future__ import annotations

import json
import os
import sys
import time
import unittest
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.testing._internal.common_distributed import (
    MultiProcContinuousTest,
    MultiProcessTestCase,
)

from tpcheck.bench import mlp

DEGREE, FOLDER = "TPCHECK_BENCH_DEGREE", "TPCHECK_BENCH_FOLDER"
MOST = 24

degree = int(os.environ.get(DEGREE, "4"))
work = mlp.cases(degree, MOST)


def _met(test: str) -> None:
    """Notes when this rank was ready: the wall clock is the one that processes share."""
    path = Path(os.environ[FOLDER]) / f"{test}.{dist.get_rank()}"
    path.write_text(repr(time.time()))


class Spawned(MultiProcessTestCase):
    """New ranks for every test."""

    world_size = degree

    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()

    def check(self, index: int) -> None:
        store = dist.FileStore(self.file_name, degree)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=degree)
        _met(f"test_{index:02}")
        mlp.example(work[index], dist.group.WORLD)


class Continuous(MultiProcContinuousTest):
    """The ranks of the first test serve all."""

    world_size = degree

    @classmethod
    def backend_str(cls) -> str:
        return "gloo"

    @classmethod
    def device_type(cls) -> str:
        return "cpu"

    @classmethod
    def _init_pg(cls, rank: int, world_size: int, rdvz_file: str) -> None:
        super()._init_pg(rank, world_size, rdvz_file)
        _met("test_00")

    def check(self, index: int) -> None:
        mlp.example(work[index], dist.group.WORLD)


def _method(index: int) -> Any:
    return lambda self: self.check(index)


CLASSES: dict[str, type[Any]] = {
    "MultiProcessTestCase": Spawned,
    "MultiProcContinuousTest": Continuous,
}
for _class in CLASSES.values():
    for _index in range(MOST):
        setattr(_class, f"test_{_index:02}", _method(_index))


class _Clock(unittest.TestResult):
    """Notes when each test starts and how long it takes, setUp and tearDown included."""

    def __init__(self) -> None:
        super().__init__()
        self.started: dict[str, float] = {}
        self.seconds: dict[str, float] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.started[_name(test)] = time.time()

    def stopTest(self, test: unittest.TestCase) -> None:
        self.seconds[_name(test)] = time.time() - self.started[_name(test)]
        super().stopTest(test)


def _name(test: unittest.TestCase) -> str:
    return test.id().rsplit(".", 1)[-1]


def main(which: str, count: int) -> None:
    names = [f"test_{index:02}" for index in range(count)]
    clock = _Clock()
    unittest.TestSuite(CLASSES[which](name) for name in names).run(clock)
    for _, reason in clock.failures + clock.errors:
        sys.exit(reason)
    met = {name: list(Path(os.environ[FOLDER]).glob(f"{name}.*")) for name in names}
    starts = [
        max(float(mark.read_text()) for mark in marks) - clock.started[name]
        for name, marks in met.items()
        if marks
    ]
    print(json.dumps({"starts": starts, "seconds": list(clock.seconds.values())}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
