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
    after = of_family(family, tensor, torch.float32)
    assert torch.equal(tensor, before) and after.shape == tensor.shape
    return after


def test_each_family_is_what_it_says() -> None:
    assert torch.equal(made("normal"), NORMAL)
    side = MEAN if NORMAL[0, 0, 0] > 0 else -MEAN
    assert torch.equal(made("shifted"), NORMAL + side)
    assert torch.equal(made("shifted", -NORMAL), -NORMAL - side)
    assert torch.equal(made("equal"), NORMAL[..., :1].expand(2, 3, 5))
    changed = made("outlier") != NORMAL
    assert changed.nonzero().tolist() == [[1, 2, 4]]
    assert made("outlier")[1, 2, 4] == NORMAL[1, 2, 4] * OUTLIER
    assert made("zeros").view(6, 5).any(1).tolist() == [True, False] * 3
    kept = made("one-hot").view(6, 5).nonzero().tolist()
    assert kept == [[0, 0], [1, 2], [2, 4], [3, 1], [4, 3], [5, 0]]
    infinite = made("infinite").view(6, 5)
    assert infinite[0, 0] == -torch.inf and infinite[-1, -1] == torch.inf
    assert torch.equal(infinite[1:-1], NORMAL.view(6, 5)[1:-1])
    assert torch.equal(made("infinite", NORMAL[0, :2]), NORMAL[0, :2]), "one row is left to judge"


@pytest.mark.parametrize(
    ("dtype", "least"),
    [
        (torch.float64, torch.finfo(torch.float32).smallest_normal),
        (torch.float16, torch.finfo(torch.float16).smallest_normal),
    ],
)
def test_subnormal_numbers_are_near_the_least_normal_one(dtype: torch.dtype, least: float) -> None:
    ratio = of_family("subnormal", NORMAL, dtype) / least
    assert torch.equal(ratio, NORMAL / 2.0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", [(5,), (), (0, 3), (2, 0)])
def test_vectors_and_empty_tensors_are_left_or_moved(family: str, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape)
    wanted = {
        "shifted": tensor + MEAN,
        "subnormal": tensor / 2 * torch.finfo(torch.float32).smallest_normal,
    }
    assert torch.equal(made(family, tensor), wanted.get(family, tensor))
