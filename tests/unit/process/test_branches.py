"""Which branches code takes: of each jump where it leads, and of nobody else's code."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from tpcheck.process.branches import MOST, end, noted, unnoted


def taken(call: Callable[[], Any], most: int = MOST) -> set[str]:
    with noted(most) as branches:
        call()
    return branches.words()


def both(a: int, b: int) -> bool:
    return a > 1 and b > 1


def test_of_two_conditions_in_a_row_it_is_seen_how_far_they_hold() -> None:
    shown = [taken(lambda ab=ab: both(*ab)) for ab in ((0, 0), (0, 2), (2, 0), (2, 2))]
    assert shown[0] == shown[1] != shown[2] == shown[3], "the last one is returned and no jump"
    assert all(word.startswith("branch ") for word in shown[0] | shown[2])


def chosen(n: int) -> int:
    if n == 41:
        return 1
    for _ in range(n):
        pass
    return 0


def test_ifs_and_loops_are_branches() -> None:
    shown = [taken(lambda n=n: chosen(n)) for n in (0, 3, 4, 41)]
    assert shown[1] == shown[2] and len(set(map(frozenset, shown))) == 3


def test_code_of_libraries_is_not_looked_at() -> None:
    assert not taken(lambda: json.dumps({"a": [1, 2, {"b": None}]}))
    assert not taken(lambda: torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2)))


class Chosen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        return dy * 2 if dy.shape[0] == 41 else dy + dy


def passed(rows: int) -> None:
    x = torch.ones(rows, requires_grad=True)
    Chosen.apply(x).sum().backward()


def test_a_backward_is_seen() -> None:
    assert taken(lambda: passed(41)) != taken(lambda: passed(40)) == taken(lambda: passed(39))


def test_nothing_is_noted_aside_and_all_is_as_before() -> None:
    def call() -> None:
        with unnoted():
            both(2, 2)

    assert not taken(call)
    assert sys.gettrace() is None
    with unnoted():
        assert sys.gettrace() is None


def test_what_comes_after_the_end_is_not_noted() -> None:
    def call() -> None:
        chosen(41)
        end()
        both(2, 2)

    assert taken(call) == taken(lambda: chosen(41))


def test_a_debugger_keeps_its_trace_function() -> None:
    def trace(*_: Any) -> None:
        return None

    found: list[set[str]] = []

    def debugged() -> None:
        sys.settrace(trace)
        found.append(taken(lambda: both(2, 2)))
        with unnoted():
            assert sys.gettrace() is trace

    thread = threading.Thread(target=debugged)  # whose trace function is its own
    thread.start()
    thread.join()
    assert found == [set()]


def test_it_ends_after_so_many_instructions() -> None:
    def call() -> None:
        for n in range(400):
            both(n % 3, n % 5)
        chosen(3)

    assert taken(call, 500) < taken(call)
    assert taken(call, 0) == set()
