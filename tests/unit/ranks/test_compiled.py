"""Compiled candidates: found to be so, and run eagerly where they are asked to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tpcheck.ranks.compiled import compiles, eagerly


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


def test_nothing_is_compiled_meanwhile() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    function = torch.compile(lambda x: x.sin() + 1, backend=backend)
    with eagerly():
        function(torch.ones(2))
    assert not graphs
    function(torch.ones(2))
    assert graphs
