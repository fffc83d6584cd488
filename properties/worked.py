"""An MLP worked by hand at TP=2, without its activation: x [1, 2] gives [4, 5], of which the ranks
have the terms [1, 2] and [3, 3]."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fixtures.parallel.linear import ColumnLinear, RowLinear
from tpcheck import Case, Check, Layout, Shard, Spec
from tpcheck.case import DTYPES

UP = [[1.0, 0.0, 1.0, 2.0], [0.0, 1.0, 1.0, -1.0]]  # [K, N], as it is written by hand
DOWN = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 1.0]]
WEIGHTS = {"up.weight": UP, "down.weight": DOWN}


class Pair(nn.Module):
    """x [B, S, 2] → up, then down, [B, S, 2]."""

    def __init__(self, up: nn.Module, down: nn.Module) -> None:
        super().__init__()
        self.up, self.down = up, down

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x))  # type: ignore[no-any-return]


def build(case: Case, mesh: Any) -> Pair:
    """Column, then row."""
    group = mesh["tp"].get_group()
    up = ColumnLinear(2, 4, bias=False, group=group)
    return Pair(up, RowLinear(4, 2, bias=False, group=group))


def _given(name: str, shape: tuple[int, ...], draw: Any) -> Tensor:
    return torch.tensor(WEIGHTS[name], dtype=torch.float64).t().contiguous()


def _inputs(case: Case, draw: Any) -> Mapping[str, Tensor]:
    return {"x": torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)}


spec = Spec(
    name="worked_example",
    cases=[Case(mesh={"tp": tp}, dtype=dtype, step=tp == 4) for dtype in DTYPES for tp in (2, 4)],
    reference=lambda case: Pair(nn.Linear(2, 4, bias=False), nn.Linear(4, 2, bias=False)),
    inputs=_inputs,
    layout=lambda case: Layout(params={"up.weight": Shard(0), "down.weight": Shard(1)}),
    init=_given,
)
worked_example = Check(spec, candidate=build)
