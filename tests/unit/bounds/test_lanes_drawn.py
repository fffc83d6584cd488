"""Errors of runs that are made at once are float64, of one number too."""

from __future__ import annotations

import pytest
import torch

from tpcheck.bounds.lanes import Drawn
from tpcheck.bounds.scales import Sigma


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
def test_a_small_error_is_not_lost(shape: tuple[int, ...]) -> None:
    sigma = Sigma(torch.full(shape, 1e-60, dtype=torch.float64), (), None)
    errors = Drawn(4, 2, 8.0).of(sigma, torch.Generator().manual_seed(0))
    assert errors.dtype == torch.float64 and errors.shape == (9, *shape)
    assert bool((errors[1:] != 0).all()) and bool((errors[0] == 0).all())
