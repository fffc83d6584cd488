"""The time limit of a case in Triton's interpreter, a thousand times as slow as a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

import tpcheck
from tpcheck.case import Case
from tpcheck.engines import waiting
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.search.failures import decided
from tpcheck.verdict import CaseResult, Verdict


@triton.jit
def _doubles(x_ptr, y_ptr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0)
    tl.store(y_ptr + at, 2.0 * tl.load(x_ptr + at))


@triton.jit
def _computes_for_ever(x_ptr, y_ptr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0)
    x = tl.load(x_ptr + at)
    left = x * 0.0 + 1.0
    while left > 0.5:
        left = left * 1.0
    tl.store(y_ptr + at, x)


#: Seconds of the limit, and how many launches take longer together.
LIMIT, LAUNCHES = 0.5, 8
#: Of a seed for which few calls come after the first.
CASE = Case(dims={"rows": 2, "width": 3}, dtype="float32", mesh={"tp": 1}, seed=1)


def launched(kernel: Any, x: Tensor) -> Tensor:
    y = torch.empty(x.shape, dtype=x.dtype)
    if x.numel():
        kernel[(x.numel(),)](x.contiguous(), y)
    return y


def slow(x: Tensor) -> Tensor:
    """Each launch well within the limit, all together above it."""
    for _ in range(LAUNCHES):
        y = launched(_doubles, x)
        time.sleep(LIMIT / 5)
    return y


def stuck(x: Tensor) -> Tensor:
    return launched(_computes_for_ever, x)


def launches_for_ever(x: Tensor) -> Tensor:
    while True:
        launched(_doubles, x)


def twice(x: Tensor) -> Tensor:
    return 2.0 * x


def run(fn: Callable[[Tensor], Tensor]) -> CaseResult:
    check = tpcheck.kernel_check(
        fn,
        reference=twice,
        arguments={"x": tpcheck.Argument("rows", "width", gradient=False)},
        sizes={"rows": 2, "width": 3},
        name=fn.__name__,
    )
    with Engine("gloo", 1, time_limit=LIMIT) as engine:
        runner = Runner(check, engine)
        return decided(lambda: runner.run(CASE))


def test_a_case_whose_programs_go_on_is_waited_for() -> None:
    found = run(slow)
    assert found.verdict is Verdict.PASS, found.unknown


@pytest.mark.parametrize("fn", [stuck, launches_for_ever])
def test_a_case_that_does_not_end_is_a_hang(
    fn: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LIMITS", 4)
    found = run(fn)
    assert {m.kind for m in found.causes} == {"hang"}, found.unknown
