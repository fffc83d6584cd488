"""Steps of an optimizer that has only some of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from properties import mlp
from tests.ranks.ranks.test_own_steps import MLP
from tpcheck import Training
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict

CASE = replace(MLP, dtype="float64")


def matrices(named: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in named.values() if p.ndim > 1], lr=0.1)


class Own:
    """The steps of `matrices`; `zeroed`: which gradients go before each."""

    def __init__(self, module: nn.Module, zeroed: Callable[[nn.Parameter], bool]) -> None:
        self.inside = matrices(dict(module.named_parameters()))
        self.parameters, self.zeroed = [*module.parameters()], zeroed

    def step(self) -> None:
        self.inside.step()

    def zero_grad(self) -> None:
        for parameter in filter(self.zeroed, self.parameters):
            parameter.grad = None

    @property
    def state(self) -> Mapping[Any, Any]:
        return self.inside.state


@pytest.mark.parametrize(
    ("zeroed", "verdict"),
    [
        (None, Verdict.PASS),
        (lambda p: p.ndim > 1, Verdict.PASS),
        (lambda p: True, Verdict.PASS),
        (lambda p: p.ndim == 1, Verdict.FAIL),
    ],
    ids=["the spec's", "its own", "all", "others"],
)
def test_gradients_of_the_others_do_not_add_up(
    gloo: Engine, zeroed: Callable[[nn.Parameter], bool] | None, verdict: Verdict
) -> None:
    spec = replace(mlp.mlp.spec, training=Training(matrices, steps=3))
    own = None if zeroed is None else lambda module, mesh: Own(module, zeroed)
    check = replace(mlp.mlp, spec=spec, optimizer=own)
    assert Runner(check, gloo).run(CASE).verdict is verdict
