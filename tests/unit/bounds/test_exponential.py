"""Exponentials as GPUs compute them, e to the power of x as 2 to that of x · log₂ e: inside."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.unit.bounds.noisy import noisy, spread
from tpcheck.bounds.compare import compare
from tpcheck.vocabulary import Kind


def _exp(x: Tensor) -> Tensor:
    """Rounded to float32 where a GPU rounds."""
    return torch.exp2(x * torch.tensor(math.log2(math.e), dtype=torch.float32))


def _sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + _exp(-x))


def _silu_gradient(x: Tensor) -> Tensor:
    return torch.autograd.grad(F.silu(x := x.detach().requires_grad_()), x, torch.ones_like(x))[0]


def _own_softmax(x: Tensor) -> Tensor:
    powers = _exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


Function = Callable[[Tensor], Tensor]
FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "exp": (torch.exp, _exp),
    "sigmoid": (torch.sigmoid, _sigmoid),
    "silu": (F.silu, lambda x: x * _sigmoid(x)),
    "derivative of silu": (
        _silu_gradient,
        lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x))),
    ),
    "softplus": (F.softplus, lambda x: torch.log1p(_exp(x))),
    "log sigmoid": (lambda x: F.logsigmoid(-x), lambda x: -torch.log1p(_exp(x))),
    "softmax": (lambda x: x.softmax(-1), _own_softmax),
}


@pytest.mark.parametrize("equal", [False, True], ids=["different", "equal"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_exponents_may_round(name: str, equal: bool) -> None:
    """In a row of equal numbers all are off alike."""
    reference, own = FUNCTIONS[name]
    x = torch.linspace(-80.0, -20.0, 4096)
    if equal:
        x = torch.full_like(x, -59.3)
        x[0] = 0.0  # the largest, for softmax
    x = x.reshape(1, -1)
    due, value = reference(x.double()), own(x)
    deviations = noisy(reference, x.double(), dtype=torch.float32, degree=1)
    found = spread(deviations, reference(x).double() - due, dtype=torch.float32)
    compared = compare(value, due, found, name="output", kind=Kind.OUTPUT, rank=0)
    assert compared.mismatch is None, compared.mismatch
    off = (value.double() - due).abs() / due.abs().clamp(min=1e-300)
    assert float(off.max()) > 4 * 2.0**-24  # as a GPU's are


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu", "softplus", "log sigmoid"])
def test_no_more_than_that(name: str) -> None:
    """An exponent that is off by a bit of bfloat16's is told."""
    reference, own = FUNCTIONS[name]
    x = torch.linspace(-80.0, -20.0, 4096).reshape(1, -1)
    due, value = reference(x.double()), own(x * (1 + 2.0**-17))
    deviations = noisy(reference, x.double(), dtype=torch.float32, degree=1)
    found = spread(deviations, reference(x).double() - due, dtype=torch.float32)
    compared = compare(value, due, found, name="output", kind=Kind.OUTPUT, rank=0)
    assert compared.mismatch is not None


def test_the_sharpness_of_softplus_is_in_the_exponent() -> None:
    x = torch.linspace(-80.0, -20.0, 4096).reshape(1, -1) / 64
    due, value = F.softplus(x.double(), 64.0), torch.log1p(_exp(64 * x)) / 64

    def reference(x: Tensor) -> Tensor:
        return F.softplus(x, 64.0)

    deviations = noisy(reference, x.double(), dtype=torch.float32, degree=1)
    found = spread(deviations, reference(x).double() - due, dtype=torch.float32)
    compared = compare(value, due, found, name="output", kind=Kind.OUTPUT, rank=0)
    assert compared.mismatch is None, compared.mismatch
