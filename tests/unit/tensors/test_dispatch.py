"""Operators of higher order, as `torch.cond`, run under each mode of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.masks import Masking
from tpcheck.oracle.producers import Producers
from tpcheck.ranks.reading import Reading


def chosen(x: Tensor) -> Tensor:
    found: Tensor = torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))
    return found


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    """What is compiled under one mode is kept, and may fail under another, or without one."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


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


@pytest.mark.filterwarnings("ignore")  # torch's own
@pytest.mark.parametrize(
    "make", [counting, lambda: Producers(torch.float32), lambda: SplitProducts(2)]
)
def test_one_has_a_backward_under_what_leaves_the_compiler_alone(make: Callable[[], Any]) -> None:
    x = torch.ones(3, requires_grad=True)
    with make():
        chosen(2 * x).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full((3,), 2.0))


def test_what_one_rounds_is_not_taken_for_nothing() -> None:
    noise = RoundingNoise(Arithmetic(torch.float32, 2), torch.Generator())
    with noise, pytest.raises(InvalidArgument, match=r"as torch\.cond, may round is not known"):
        chosen(torch.ones(3, dtype=torch.float64))
