"""Launches are told by name to the rank whose thread makes them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tpcheck.kernels import launches


def elsewhere(call: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result()


def test_a_launch_is_told_inside_the_block_and_not_outside() -> None:
    heard: list[str] = []
    with launches.told(heard.append):
        launches.tell("gemm")
    launches.tell("gelu")
    assert heard == ["gemm"]


def test_a_launch_of_autograds_own_thread_belongs_to_the_only_rank() -> None:
    heard: list[str] = []
    with launches.told(heard.append):
        elsewhere(lambda: launches.tell("backward"))
    assert heard == ["backward"]


def test_of_ranks_that_are_threads_each_hears_its_own() -> None:
    heard: tuple[list[str], list[str], list[str]] = ([], [], [])

    def other() -> None:
        with launches.told(heard[1].append):
            launches.tell("other")
            elsewhere(lambda: launches.tell("nobody's"))

    with launches.told(heard[0].append):
        elsewhere(other)
        launches.tell("own")
    assert heard == (["own"], ["other"], [])


def test_compiled_kernels_are_told_when_launched_and_not_when_warmed_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("triton")
    from triton.runtime.jit import JITFunction

    ran: list[Any] = []
    run = lambda function, *given, grid, warmup, **named: ran.append((given, grid, named))  # noqa: E731
    monkeypatch.setattr(JITFunction, "run", run)
    launches.install.__wrapped__()

    def scaled(x: Any, FACTOR: Any) -> None:
        pass

    kernel = JITFunction(scaled)
    heard: list[str] = []
    with launches.told(heard.append):
        kernel[(4,)](1, FACTOR=2)
        assert heard == ["scaled"]
        kernel.run(1, grid=(4,), warmup=True, FACTOR=2)
    assert heard == ["scaled"] and ran == [((1,), (4,), {"FACTOR": 2})] * 2
