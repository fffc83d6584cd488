"""A plan of `parallelize_module` as a check: wrong ones fail by name (right ones: properties)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from tpcheck import Case, Layout
from tpcheck.adapters import dtensor
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict

CASE = Case(dims={"hidden": 4, "inner": 8}, mesh={"tp": 2})


class MLP(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.up = torch.nn.Linear(case["hidden"], case["inner"], bias=False)
        self.down = torch.nn.Linear(case["inner"], case["hidden"], bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def check(plan: Any) -> Any:
    return dtensor.check(
        MLP,
        plan,
        cases=[CASE],
        inputs=lambda case, draw: {"x": draw("x", 2, 3, case["hidden"])},
    )


RIGHT = {"up": ColwiseParallel(), "down": RowwiseParallel()}


@pytest.mark.parametrize("plan", [RIGHT, lambda case: RIGHT], ids=["plan", "of a case"])
def test_a_right_plan_passes(gloo: Engine, plan: Any) -> None:
    assert Runner(check(plan), gloo).run(CASE).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ({"up": ColwiseParallel(), "dwn": RowwiseParallel()}, "plan-entry-unmatched"),
        ({"mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()}, "plan-entry-unmatched"),
        ({}, "parameter-not-sharded"),
    ],
)
def test_a_wrong_plan_is_named(gloo: Engine, plan: Any, code: str) -> None:
    runner = Runner(check(plan), gloo)
    result = runner.run(CASE)
    assert result.verdict is Verdict.FAIL
    assert examine_failure(runner, result).diagnosis.code == code


@pytest.mark.parametrize(
    ("down", "verdict"), [(Shard(-1), Verdict.PASS), (Shard(0), Verdict.FAIL)], ids=str
)
def test_a_layout_in_torchs_words_holds_a_plan_to_them(
    gloo: Engine, down: Any, verdict: Verdict
) -> None:
    layout = Layout(params={"up.weight": Shard(-2), "down.weight": down})
    held = replace(check(RIGHT), overrides={"layout": lambda case: layout})
    result = Runner(held, gloo).run(CASE)
    assert result.verdict is verdict
    assert {found.tensor for found in result.mismatches} <= {"down.weight"}


def test_what_is_no_plan_is_refused_in_one_line(gloo: Engine) -> None:
    with pytest.raises(InvalidArgument, match="a plan is a mapping of module names to styles"):
        Runner(check(3), gloo).run(CASE)
