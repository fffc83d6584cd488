"""Runs that are spread over processes give what they give in one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from tests.unit.oracle.test_expected import CASE
from tpcheck import specs
from tpcheck.oracle import noise
from tpcheck.oracle import over_cores as module
from tpcheck.oracle.effort import CONFIRM, SCREEN
from tpcheck.oracle.limit import TimeUp, within
from tpcheck.oracle.over_cores import SHARE, _Child, over_cores
from tpcheck.oracle.pose import Posed, pose

COUNT = 2 * SHARE


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def give(count: int) -> None:
        monkeypatch.setattr(module, "cores", lambda: count)

    return give


def same(x: Any) -> Any:
    return x


def where(k: int) -> tuple[int, int]:
    return k, os.getpid()


def test_each_share_has_a_process_and_all_come_back_in_order(cores: Callable[[int], None]) -> None:
    cores(2)
    found = over_cores([partial(where, k) for k in range(COUNT)], same, same)
    assert [k for k, _ in found] == list(range(COUNT))
    assert len({pid for _, pid in found}) == 2


def test_few_runs_are_made_here(cores: Callable[[int], None]) -> None:
    cores(2)
    found = over_cores([partial(where, k) for k in range(COUNT - 1)], same, same)
    assert {pid for _, pid in found} == {os.getpid()}


def test_what_comes_from_a_child_is_packed(cores: Callable[[int], None]) -> None:
    cores(2)
    here = os.getpid()
    runs = [partial(where, k) for k in range(COUNT)]
    found = over_cores(runs, lambda one: (*one, "packed"), lambda given: given[:2])
    assert [k for k, _ in found] == list(range(COUNT))
    unpacked = over_cores(runs, lambda one: (*one, "packed"), same)
    assert all((len(one) == 3) is (one[1] != here) for one in unpacked)


def test_the_share_of_a_child_that_dies_is_run_here(cores: Callable[[int], None]) -> None:
    cores(2)
    here = os.getpid()

    def run(k: int) -> tuple[int, int]:
        if os.getpid() != here and k > 2:
            os.kill(os.getpid(), 9)
        return where(k)

    found = over_cores([partial(run, k) for k in range(COUNT)], same, same)
    assert found == [(k, here) for k in range(COUNT)]


def test_what_a_run_raises_is_raised_here(cores: Callable[[int], None]) -> None:
    cores(2)

    def run(k: int) -> int:
        if k == COUNT - 1:
            raise ValueError("of the last one")
        return k

    with pytest.raises(ValueError, match="of the last one"):
        over_cores([partial(run, k) for k in range(COUNT)], same, same)


def test_a_child_that_goes_on_for_ever_ends_with_the_time(cores: Callable[[int], None]) -> None:
    cores(2)
    here = os.getpid()
    reader, writer = os.pipe()

    def run(k: int) -> None:
        if os.getpid() != here:
            os.write(writer, f"{os.getpid()} ".encode())
            time.sleep(1000)

    with pytest.raises(TimeUp), within(0.3):
        over_cores([partial(run, k) for k in range(COUNT)], same, same)
    child = int(os.read(reader, 100).split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bounds_are_the_same_on_any_number_of_cores(
    cores: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(noise, "WORTH", 0)
    children: list[_Child] = []

    def child(*given: Any) -> _Child:
        children.append(_Child(*given))
        return children[-1]

    monkeypatch.setattr(module, "_Child", child)

    def posed(count: int) -> Posed:
        cores(count)
        return pose(specs.mlp(), replace(CASE, dtype=dtype), CONFIRM)

    one, three = (posed(count).problems[0].targets for count in (1, 3))
    apart = SCREEN.runs[dtype] - 2  # of few runs two are made here
    assert len(children) == apart + 1 + 3  # of those at once none is
    for a, b in zip(one, three, strict=True):
        assert a.name == b.name
        assert torch.equal(a.spread.sigma, b.spread.sigma)
        assert (a.spread.gain, a.unused) == (b.spread.gain, b.unused)
