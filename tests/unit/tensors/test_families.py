"""What inputs of each family are like."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tpcheck.case import FAMILIES
from tpcheck.tensors.families import MEAN, OUTLIER, of_family

NORMAL = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def made(family: str, tensor: Tensor = NORMAL) -> Tensor:
    before = tensor.clone()
    after = of_family(family, tensor)
    assert torch.equal(tensor, before) and after.shape == tensor.shape
    return after


def test_each_family_is_what_it_says() -> None:
    assert torch.equal(made("normal"), NORMAL)
    assert torch.equal(made("shifted"), NORMAL + MEAN)
    assert torch.equal(made("equal"), NORMAL[..., :1].expand(2, 3, 5))
    changed = made("outlier") != NORMAL
    assert changed.nonzero().tolist() == [[1, 2, 4]]
    assert made("outlier")[1, 2, 4] == NORMAL[1, 2, 4] * OUTLIER
    assert made("zeros").view(6, 5).any(1).tolist() == [True, False] * 3


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", [(5,), (), (0, 3), (2, 0)])
def test_vectors_and_empty_tensors_are_left_or_shifted(family: str, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape)
    assert torch.equal(made(family, tensor), tensor + MEAN * (family == "shifted"))
