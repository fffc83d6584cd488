"""A parameter that a candidate has under a name more than the reference does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fixtures.parallel.collectives import copy_to_tp, reduce_from_tp
from tpcheck import Case, Check, Layout, Shard, Spec, Training
from tpcheck.engines.engine import Engine
from tpcheck.evidence import Misheld
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict
from tpcheck.vocabulary import Fault

HIDDEN, INNER = 4, 6
CASE = Case(dims={"tokens": 3}, mesh={"tp": 2}, dtype="float32")


class MLP(nn.Module):
    """The reference."""

    def __init__(self, inner: int = INNER) -> None:
        super().__init__()
        self.up = nn.Linear(HIDDEN, inner)
        self.down = nn.Linear(inner, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Twice(MLP):
    """Its first layer has a second name, before or after its own."""

    def __init__(self, group: Any, *, before: bool) -> None:
        nn.Module.__init__(self)
        self.group, layers = group, nn.ModuleList([nn.Linear(HIDDEN, INNER // group.size())])
        if before:
            self.layers = layers
        self.up = layers[0]
        self.down = nn.Linear(INNER // group.size(), HIDDEN, bias=False)
        if not before:
            self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        h = self.layers[0](copy_to_tp(x, self.group))
        return reduce_from_tp(self.down(F.gelu(h)), self.group)


class Another(Twice):
    """What the second name stands for is a layer of its own."""

    def __init__(self, group: Any, *, before: bool) -> None:
        super().__init__(group, before=before)
        self.layers = nn.ModuleList([nn.Linear(HIDDEN, INNER // group.size())])


def check(cls: type[Twice], *, before: bool) -> Check:
    spec = Spec(
        name="mlp",
        cases=[CASE],
        reference=lambda case: MLP(),
        inputs=lambda case, draw: {"x": draw("x", case["tokens"], HIDDEN)},
        layout=lambda case: Layout(
            params={"up.weight": Shard(0), "up.bias": Shard(0), "down.weight": Shard(1)}
        ),
        training=Training(lambda named: torch.optim.AdamW(named.values(), lr=0.01)),
    )

    def build(case: Case, mesh: Any) -> nn.Module:
        return cls(mesh["tp"].get_group(), before=before)

    return Check(spec, build)


@pytest.mark.parametrize("before", [True, False], ids=["before_its_own", "after_its_own"])
def test_a_second_name_of_a_parameter_is_not_a_fault(gloo: Engine, before: bool) -> None:
    result = Runner(check(Twice, before=before), gloo).run(CASE)
    assert result.verdict is Verdict.PASS, result.mismatches


@pytest.mark.parametrize("before", [True, False])
def test_another_parameter_is_one(gloo: Engine, before: bool) -> None:
    found = Runner(check(Another, before=before), gloo).run(CASE).mismatches
    details = [m.detail for m in found if isinstance(m.detail, Misheld)]
    assert details and {detail.fault for detail in details} == {Fault.UNEXPECTED}
