"""Compiled candidates are found to be so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tpcheck.ranks.compiled import compiles


class Decorated(nn.Module):
    @torch.compile(backend="eager")
    def forward(self, x: Any) -> Any:
        return x + 1


class Holds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.run = torch.compile(lambda x: x + 1, backend="eager")


class Disabled(nn.Module):
    @torch.compiler.disable
    def forward(self, x: Any) -> Any:
        return x + 1


def compiled_in_place() -> nn.Module:
    linear = nn.Linear(2, 2)
    linear.compile(backend="eager")
    return linear


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.compile(nn.Linear(2, 2), backend="eager"),
        lambda: nn.Sequential(compiled_in_place()),
        lambda: nn.Sequential(Holds()),
        Decorated,
    ],
    ids=["module", "in-place", "function", "decorated"],
)
def test_what_is_compiled_is_seen(make: Any) -> None:
    assert compiles(make())
    assert not compiles(nn.Sequential(nn.Linear(2, 2), Disabled()))
