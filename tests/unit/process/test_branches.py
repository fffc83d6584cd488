"""Which branches code takes: of each jump where it leads, and of nobody else's code."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tpcheck.process import branches as room
from tpcheck.process.branches import end, noted, unnoted


def taken(call: Callable[[], Any], *, on: bool = True) -> set[str]:
    with noted(on=on) as branches:
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


def test_it_ends_after_so_many_instructions_or_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def call() -> None:
        for n in range(400):
            both(n % 3, n % 5)
        chosen(3)

    whole = taken(call)
    assert taken(call, on=False) == set()
    for what in ("INSTRUCTIONS", "CALLS"):
        with monkeypatch.context() as patched:
            patched.setattr(room, what, 50)
            assert taken(call) < whole


LONG = "".join(f"        x = x + {n} * x - x\n" for n in range(60))
SOURCE = f"def long(x, n):\n    if n > 3:\n{LONG}    return x\n"


def test_a_jump_over_much_code_is_one_too() -> None:
    made: dict[str, Any] = {"__name__": "candidate"}
    exec(SOURCE, made)  # whose jump takes more than a byte
    assert taken(lambda: made["long"](1, 5)) != taken(lambda: made["long"](1, 2))


def test_a_trace_function_that_the_candidate_sets_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "INSTRUCTIONS", 50)
    events: list[str] = []

    def trace(frame: Any, event: str, arg: Any) -> Any:
        events.append(event)
        return trace

    def traced() -> None:
        sys.settrace(trace)
        for n in range(300):
            both(n, n)
        own = sys.gettrace()
        sys.settrace(None)
        assert own is trace

    found = taken(traced)
    assert len(found) <= 1 and events.count("call") == 300 == events.count("line")


def counted(n: int) -> Iterator[int]:
    for number in range(n):
        if number:
            yield number


def test_a_generator_that_outlives_it_is_as_any() -> None:
    made = counted(9)
    assert taken(lambda: next(made))
    lines: list[int] = []

    def trace(frame: Any, event: str, arg: Any) -> Any:
        lines.append(frame.f_lineno)
        return trace

    sys.settrace(trace)
    next(made)
    sys.settrace(None)
    assert len(lines) > 2


def test_functions_of_one_name_in_two_modules_are_two() -> None:
    source = "def f(n):\n    return 1 if n else 2\n"
    shown = []
    for module in ("one", "two"):
        made: dict[str, Any] = {"__name__": module}
        exec(source, made)
        shown.append(taken(lambda made=made: made["f"](1)))
    assert shown[0] and not shown[0] & shown[1]
