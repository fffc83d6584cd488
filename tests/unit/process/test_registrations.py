"""Kernels that are registered for torch's own operators are taken away again."""

from __future__ import annotations

import sys

import pytest
import torch

from tpcheck.process import guard
from tpcheck.process.registrations import operators


@pytest.mark.filterwarnings("ignore:.*overridden:UserWarning")
def test_an_operator_is_torchs_again() -> None:
    aspect, x = operators(), torch.tensor([0.3, -2.0])
    right, before = torch.sigmoid(x), aspect.read()
    library = torch.library.Library("aten", "IMPL")
    library.impl("sigmoid", torch.tanh, "CPU")
    assert not torch.equal(torch.sigmoid(x), right)
    assert aspect.read().keys() - before.keys() == {"aten/sigmoid/CPU"}
    assert aspect.write is not None
    aspect.write(before)
    assert torch.equal(torch.sigmoid(x), right) and aspect.read() == before


def test_an_operator_of_a_users_own_stays() -> None:
    before = operators().read()
    library = torch.library.Library("of_a_user", "DEF")
    library.define("same(Tensor x) -> Tensor")
    library.impl("same", lambda x: x.clone(), "CPU")
    assert operators().read() == before
    assert torch.ops.of_a_user.same(torch.ones(2)).tolist() == [1.0, 1.0]


def test_what_a_file_replaces_when_it_is_imported_is_put_back() -> None:
    expit, norm, out = torch.special.expit, torch.linalg.vector_norm, sys.stdout
    held = guard.of_import()
    torch.special.expit = torch.tanh
    torch.linalg.vector_norm = torch.sum
    sys.stdout = None
    left = {one.name for one in held.restore()}
    assert (torch.special.expit, torch.linalg.vector_norm, sys.stdout) == (expit, norm, out)
    assert left == {"torch.special.expit", "torch.linalg.vector_norm", "sys.stdout"}


def test_what_torch_registers_of_its_own_when_it_is_first_used_stays() -> None:
    """As rules of `torch.vmap`: it would not register them again."""
    before = operators().read()
    x = torch.randn(3, 2)
    right = torch.stack([torch.nn.functional.mse_loss(row, 2 * row) for row in x])
    found = torch.vmap(lambda row: torch.nn.functional.mse_loss(row, 2 * row))(x)
    assert torch.allclose(found, right) and operators().read() == before
    assert any("FuncTorchBatched" in key for key in torch.library._impls)
