"""Operators of higher order, as `torch.cond`, run under each mode of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.split import SplitProducts
from tpcheck.comms.trace import Recorder
from tpcheck.diagnosis.hypotheses.scales import _Roundings
from tpcheck.oracle.masks import Masking
from tpcheck.oracle.producers import Producers
from tpcheck.ranks.reading import Reading


def chosen(x: Tensor) -> Tensor:
    found: Tensor = torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))
    return found


def counting() -> Recorder:
    recorder = Recorder(0)
    recorder.witnesses = frozenset({"aten::add"})
    return recorder


@pytest.mark.parametrize(
    "make",
    [
        lambda: Recorder(0),
        counting,
        lambda: Masking(0, None),
        lambda: SplitProducts(2),
        lambda: Producers(torch.float32),
        lambda: Reading(Path("nowhere")),
        _Roundings,
    ],
)
def test_one_runs_as_without_a_mode(make: Callable[[], Any]) -> None:
    x = torch.ones(3)
    with make():
        assert torch.equal(chosen(x), x + 1)
        assert torch.equal(chosen(-x), -x - 1)


def test_what_one_rounds_is_not_taken_for_nothing() -> None:
    noise = RoundingNoise(Arithmetic(torch.float32, 2), torch.Generator())
    with noise, pytest.raises(NotImplementedError, match="HigherOrderOperator cond"):
        chosen(torch.ones(3, dtype=torch.float64))
