"""Trials that take their steps late leave what those leave that took each in its turn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tpcheck.ranks.trial import Given, Later, Numbers, Trial
from tpcheck.training import Training

WEIGHT = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64)
STEPS = 4


class Decaying(torch.optim.Optimizer):
    """Counts its steps for itself, and decays by them."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"steps": 0})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["steps"] += 1
            for parameter in group["params"]:
                assert parameter.grad is not None
                parameter.sub_(parameter.grad / group["steps"])


def made(optimizer: Any, **more: Any) -> Training:
    return Training(lambda named: optimizer(named.values(), **more), steps=STEPS)


def scheduled(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)


OF: dict[str, Training] = {
    "AdamW": made(torch.optim.AdamW, lr=0.1),
    "momentum": made(torch.optim.SGD, lr=0.1, momentum=0.9),
    "of its own count": made(Decaying),
    "schedule": Training(
        lambda named: torch.optim.SGD(named.values(), lr=0.1), schedule=scheduled, steps=STEPS
    ),
}


def trial(training: Training) -> Trial:
    return Trial(training, {"w": WEIGHT})


def steps(first: Trial) -> list[tuple[dict[str, Given], Numbers]]:
    """What each step is given, and what a trial leaves that takes all of them."""
    found: list[tuple[dict[str, Given], Numbers]] = []
    number: Tensor = WEIGHT
    state: Numbers = {}
    for step in range(STEPS):
        given = {"w": Given(number, torch.cos(WEIGHT + step), state)}
        left = first.step(given)["w"]
        found.append((given, dict(left)))
        number, state = left.pop(""), left
    return found


@pytest.mark.parametrize("asked", [{3}, {0, 3}, {1, 2}, set(range(STEPS))], ids=str)
@pytest.mark.parametrize("name", OF)
def test_a_step_that_is_asked_for_is_what_it_is_in_turn(name: str, asked: set[int]) -> None:
    later = Later([trial(OF[name])])
    for step, (given, due) in enumerate(steps(trial(OF[name]))):
        later.begin(given)
        if step in asked:
            (left,) = later.left()
            assert left["w"].keys() == due.keys()
            for key, tensor in due.items():
                torch.testing.assert_close(left["w"][key], tensor, rtol=1e-12, atol=0.0)
            assert later.left()[0] is left, "it is taken once"


def test_a_step_that_somebody_else_has_taken_counts() -> None:
    (_, _), (given, due), *_ = steps(trial(OF["of its own count"]))
    later = Later([trial(OF["of its own count"])])
    later.begin(None)
    later.begin(given)
    torch.testing.assert_close(later.left()[0]["w"][""], due[""])


def test_what_a_trial_raises_is_raised_where_it_is_asked() -> None:
    later = Later([trial(OF["AdamW"])])
    later.begin({})
    with pytest.raises(KeyError):
        later.left()
