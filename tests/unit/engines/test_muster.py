"""On which processors ranks are pinned."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import pytest

from tpcheck.engines import KINDS
from tpcheck.engines.muster import Muster


class Source:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.cpus: list[int | None] = []

    def ask(self, index: int, ranks: list[int], request: dict[str, Any], *_: Any) -> None:
        self.cpus.append(request["cpu"])


def pinned(kind: str = "gloo") -> list[int | None]:
    source: Any = Source()
    Muster(KINDS[kind]).ask(source, "store", 0, "a world", 4)
    found: list[int | None] = source.cpus
    return found


@pytest.fixture(autouse=True)
def sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("no processes are pinned here")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


def test_ranks_have_processors_one_after_the_other() -> None:
    first = pinned()
    assert first == [(os.getpid() + i) % 16 for i in range(4)]
    assert pinned("threads") == [None] and pinned("torchrun") == [None] * 4


def test_workers_of_one_run_share_none_as_far_as_there_are_enough() -> None:
    forked = multiprocessing.get_context("fork")
    every: list[int | None] = []
    for _ in range(4):
        mine, theirs = forked.Pipe()
        worker = forked.Process(target=lambda end=theirs: end.send(pinned()))
        worker.start()
        every += mine.recv()
        worker.join()
    assert sorted(map(int, filter(lambda cpu: cpu is not None, every))) == list(range(16))  # type: ignore[arg-type]
