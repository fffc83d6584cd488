"""Which cases are judged again under closer bounds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tpcheck import Replicate
from tpcheck.bounds.spread import Spread
from tpcheck.case import Case
from tpcheck.oracle.effort import CONFIRM
from tpcheck.oracle.pose import Posed
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Problem, Target
from tpcheck.protocol.returned import file_of
from tpcheck.runner.second_look import CLEAR, doubtful, look_again
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

NONE = torch.zeros(2, dtype=torch.float64)


def suspected(dtype: str, *, integer: bool, error: float, bound: float) -> tuple[Posed, RankReport]:
    exact = NONE.long() if integer else None
    kind = torch.int64 if integer else getattr(torch, dtype)
    target = Target(Kind.OUTPUT, "y", Replicate(), kind, NONE, Spread(NONE, 1, 1), exact=exact)
    posed = Posed(Case(dtype=dtype), [Problem(targets=[target])], {}, {}, {})
    wrong = Mismatch("y", Kind.OUTPUT, 0, (0,), 0.0, error, error, bound)
    return posed, RankReport(0, [wrong], suspects={(Kind.OUTPUT, "y"): Replicate()})


@pytest.mark.parametrize(
    ("dtype", "integer", "error", "bound", "expected"),
    [
        ("bfloat16", False, 1.0, 0.1, True),
        ("float64", False, 0.9 * CLEAR, 1.0, True),
        ("float64", False, 1.1 * CLEAR, 1.0, False),
        ("float64", False, 1.0, 0.0, False),
        ("float64", True, 1.0, 0.0, True),  # few runs may not have met a tie
    ],
)
def test_closer_bounds_may_clear_it(
    dtype: str, integer: bool, error: float, bound: float, expected: bool
) -> None:
    posed, report = suspected(dtype, integer=integer, error=error, bound=bound)
    assert doubtful(posed, [report]) is expected


def test_what_was_looked_at_closely_is_not_looked_at_again() -> None:
    posed, report = suspected("float64", integer=True, error=1.0, bound=0.0)
    object.__setattr__(posed, "effort", CONFIRM)
    assert not doubtful(posed, [report])


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda file: None])
def test_without_the_tensors_that_a_rank_kept_its_evidence_stands(
    tmp_path: Path, put: Callable[[Path], object]
) -> None:
    posed, report = suspected("float32", integer=False, error=1.0, bound=0.1)
    found = list(report.mismatches)
    put(file_of(tmp_path, report.rank))
    look_again(posed, [report], tmp_path)
    assert report.mismatches == found
