"""Jumps in float64: a step by the sign of what is zero but for rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpcheck import Case, Layout, Spec, Training
from tpcheck.evidence import Values
from tpcheck.oracle.effort import CLOSER, CONFIRM, SCREEN
from tpcheck.oracle.pose import Posed, pose
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Target
from tpcheck.runner.second_look import doubtful
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

RATE = 0.01
CASE = Case(mesh={"tp": 1}, seed=3)


class Signs(torch.optim.Optimizer):
    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for own in group["params"]:
                own.add_(own.grad.sign(), alpha=-RATE)


class Blind(nn.Module):
    """What comes after is blind to `up.bias`: its gradient is zero. That of `still` is to the bit,
    as it is computed in this order."""

    def __init__(self, *, logs: bool = False) -> None:
        super().__init__()
        self.logs = logs
        self.up, self.still = nn.Linear(3, 4), nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Any:
        y = self.up(x)
        apart = y - y.mean(0)
        out = apart / (apart.square().mean(0) + 1e-5).sqrt() + (self.still - self.still)
        return (out, out.detach().float().square().mean()) if self.logs else out


def posed(optimizer: Any = Signs, *, logs: bool = False) -> Posed:
    spec = Spec(
        "blind",
        cases=[CASE],
        layout=lambda case: Layout(),
        reference=lambda case: Blind(logs=logs),
        inputs=lambda case, draw: {"x": draw("x", 5, 3)},
        training=Training(lambda named: optimizer(named.values()), steps=3),
    )
    return pose(spec, CASE, SCREEN)


def targets(of: Posed) -> dict[tuple[str, str], Target]:
    return {(t.kind, t.name): t for t in of.problems[0].targets}


@pytest.mark.parametrize("logs", [False, True], ids=["float64", "something in float32"])
@pytest.mark.parametrize("effort", [CLOSER, CONFIRM], ids=["closer", "confirm"])
def test_a_step_by_the_sign_of_zero_may_go_either_way(effort: Any, logs: bool) -> None:
    few = posed(logs=logs)
    assert few.closely is not None
    found = targets(few.closely(effort))
    for step in ("", "@step2", "@step3"):
        bias, weight = (found[Kind.PARAM, f"up.{name}{step}"].spread for name in ("bias", "weight"))
        assert (bias.sigma * bias.elementwise_limit(4) > 3 * 2 * RATE).all(), step
        assert (weight.sigma * weight.elementwise_limit(12) < 1e-6 * RATE).all(), step
        gradient = found[Kind.PARAM_GRAD, f"up.bias{step}"].spread
        assert (gradient.sigma < 1e-10).all()
        still = found[Kind.PARAM, f"still{step}"].spread
        assert (still.sigma < 1e-13).all()


def test_a_smooth_step_is_bounded_as_closely_as_without_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sigmas() -> dict[tuple[str, str], Tensor]:
        few = posed(torch.optim.AdamW)
        assert few.closely is not None
        return {key: target.spread.sigma for key, target in targets(few.closely(CONFIRM)).items()}

    with_pairs = sigmas()
    monkeypatch.setattr("tpcheck.bounds.spread._with_jumps", lambda sigma, deviations: sigma)
    without = sigmas()
    for key, sigma in without.items():
        if "up.bias" not in key[1]:  # AdamW divides by what is zero but for rounding, too
            assert (with_pairs[key] <= 1.1 * sigma).all(), key


@pytest.mark.parametrize(
    ("kind", "name", "may_be_cleared"),
    [
        (Kind.PARAM, "up.bias", True),
        (Kind.PARAM_GRAD, "up.bias@step2", True),
        (Kind.PARAM_GRAD, "up.bias", False),
        (Kind.OUTPUT, "output", False),
    ],
)
def test_what_a_step_comes_before_is_looked_at_again_however_far_off(
    kind: Kind, name: str, may_be_cleared: bool
) -> None:
    off = Mismatch(name, kind, 0, error=1.0, bound=1e-12, detail=Values(1, 4))
    held = {(kind, name): targets(few := posed())[kind, name].entry}
    report = RankReport(0, mismatches=[off], suspects=held)
    assert doubtful(few, [report]) is may_be_cleared
