"""A reference that computes in fewer digits inside, whatever the case's dtype: what is wrong in
float32 may be within the bounds of float64, and no less wrong there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fixtures.parallel.collectives import copy_to_tp
from tests.ranks.diagnosis.test_examine import examined
from tpcheck import Case, Check, Layout, Shard, Spec
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict

CASE = Case(dims={"tokens": 1, "width": 2}, mesh={"tp": 2}, dtype="float32", seed=0)


class Norm(nn.Module):
    """x / its root mean square, in bfloat16, times a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def normed(self, x: Tensor) -> Tensor:
        low = x.bfloat16()
        low = low * (low.square().mean(-1, keepdim=True) + 1e-3).rsqrt()
        return low.to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.normed(x) * self.weight


class ShardedNorm(Norm):
    """Each rank has a part of the weight, and what comes of it."""

    def __init__(self, width: int, group: Any, factor: float) -> None:
        super().__init__(width // group.size())
        self.group, self.factor = group, factor ** group.rank()

    def forward(self, x: Tensor) -> Tensor:
        own = self.normed(copy_to_tp(x, self.group)).chunk(self.group.size(), -1)
        return own[self.group.rank()] * self.weight * self.factor


def check(factor: float) -> Check:
    spec = Spec(
        name="norm",
        cases=[CASE],
        reference=lambda case: Norm(case["width"]),
        inputs=lambda case, draw: {"x": draw("x", case["tokens"], case["width"])},
        layout=lambda case: Layout(params={"weight": Shard(0)}, outputs={"output": Shard(1)}),
    )

    def build(case: Case, mesh: Any) -> nn.Module:
        return ShardedNorm(case["width"], mesh["tp"].get_group(), factor)

    return Check(spec, build, name="norm")


def test_a_factor_is_no_rounding_for_being_within_the_bounds_of_float64(gloo: Engine) -> None:
    found = examined(check(1.15), CASE, gloo).diagnosis
    assert found.code != "precision-loss" and "in float32" not in found.message, found


def test_the_same_in_float64_is_within_them(gloo: Engine) -> None:
    """Or the test above says nothing."""
    runner = Runner(check(1.15), gloo)
    assert runner.run(replace(CASE, dtype="float64")).verdict is Verdict.PASS
