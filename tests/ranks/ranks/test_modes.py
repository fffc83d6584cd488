"""Eval mode, frozen parameters, constant inputs and forwards of inference, on ranks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpcheck import Case, Check, Layout, Norm, Replicate, Spec, Training
from tpcheck.case import MODES
from tpcheck.engines.engine import Engine
from tpcheck.errors import CaseError, InvalidArgument
from tpcheck.evidence import Undisciplined
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Habit


class Scaled(nn.Module):
    """x [B, H] → weight · (x − mean), which in training is added to what `seen` has."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        self.bias = nn.Parameter(torch.zeros(4))
        self.register_buffer("seen", torch.zeros(4))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += x.detach().mean(0)
        return self.weight * x + self.bias + (0 if self.training else 1)


def case(mode: str, seed: int = 0) -> Case:
    return Case(mesh={"tp": 2}, microbatches=2, step=True, mode=mode, seed=seed)


def sgd(named: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(named.values(), lr=0.1)


def run(
    gloo: Engine,
    mode: str,
    cls: type[Scaled] = Scaled,
    seed: int = 0,
    reference: type[Scaled] = Scaled,
    **more: Any,
) -> CaseResult:
    spec = Spec(
        name="scaled",
        cases=[case(mode, seed)],
        reference=lambda case: reference(),
        inputs=lambda case, draw: {"x": draw("x", 3, 4)},
        layout=lambda case: Layout(params={"weight": Replicate()}),
        modes=MODES[1:],
        **more,
    )
    return Runner(Check(spec, lambda case, mesh: cls()), gloo).run(case(mode, seed))


@pytest.mark.parametrize("mode", MODES)
def test_a_right_one_passes(gloo: Engine, mode: str) -> None:
    assert run(gloo, mode).verdict is Verdict.PASS


class OwnBackward(Scaled):
    """What takes no gradient is told from what its backward does without."""

    def forward(self, x: Tensor) -> Tensor:
        wanted = x.requires_grad, self.weight.requires_grad, self.bias.requires_grad
        if wanted not in self.allowed:
            raise ValueError(f"{wanted}")
        return super().forward(x)

    allowed: Sequence[tuple[bool, ...]] = ()


ALL = (True, True, True)
WANTED = {
    "train": [ALL],
    "eval": [ALL],
    "constant": [(False, True, True)],
    "all-frozen": [(True, False, False)],
    "frozen": [(True, False, True), (True, True, False)],
    "inference": [ALL],
}


@pytest.mark.parametrize("mode", MODES)
def test_the_ranks_have_what_the_case_says(gloo: Engine, mode: str) -> None:
    class Told(OwnBackward):
        allowed = WANTED[mode]

    class Other(OwnBackward):
        allowed = tuple({*itertools.chain(*WANTED.values())} - {*WANTED[mode]})

    # the seed by which one of two is frozen, and not both
    assert run(gloo, mode, Told, seed=1).verdict is Verdict.PASS
    assert {m.kind for m in run(gloo, mode, Other, seed=1).mismatches} == {"exception"}


class Counts(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 3:
            raise ValueError(f"call {self.calls}, {self.training}, {torch.is_grad_enabled()}")
        return super().forward(x)


def test_a_forward_of_inference_comes_before_each_pass(gloo: Engine) -> None:
    assert run(gloo, "train", Counts).verdict is Verdict.PASS, "two, and the one after the step"
    (found, *_) = run(gloo, "inference", Counts).mismatches
    assert found.detail.text == "call 4, True, True" and found.detail.scene.phase == "forward"  # type: ignore[union-attr]


def test_what_inference_leaves_in_buffers_is_compared(gloo: Engine) -> None:
    class Always(Scaled):
        def forward(self, x: Tensor) -> Tensor:
            self.seen += 0 if self.training else 1
            return super().forward(x)

    assert run(gloo, "train", Always).verdict is Verdict.PASS
    assert {m.name.base for m in run(gloo, "inference", Always).mismatches} == {"seen"}


def test_modes_that_there_are_not_are_refused() -> None:
    about = {
        "name": "scaled",
        "cases": [case("train")],
        "reference": Scaled,
        "inputs": dict,
        "layout": Layout,
    }
    for modes in (("train",), "eval", ("evaluation",), ["eval"], ("eval", "eval")):
        with pytest.raises(InvalidArgument, match=r"modes=.*give a tuple of eval, frozen, all-f"):
            Spec(**about, modes=modes)  # type: ignore[arg-type]


class Unfrozen(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        self.weight.requires_grad_(True)
        return super().forward(x)


def test_a_gradient_of_what_is_frozen_is_told(gloo: Engine) -> None:
    assert run(gloo, "train", Unfrozen).verdict is Verdict.PASS
    result = run(gloo, "all-frozen", Unfrozen)
    (first, *_) = result.mismatches
    assert (first.kind, first.tensor) == ("discipline", "weight")
    assert first.detail == Undisciplined(Habit.TRAINS_FROZEN, 4)


def test_what_the_reference_freezes_is_frozen_in_each_mode(gloo: Engine) -> None:
    """An adapter's weight that the candidate has forgotten to freeze."""

    class Reference(Scaled):
        def __init__(self) -> None:
            super().__init__()
            self.weight.requires_grad_(False)

    result = run(gloo, "train", Scaled, reference=Reference)
    assert {(m.kind, m.tensor) for m in result.mismatches} >= {("discipline", "weight")}
    assert run(gloo, "train", Reference, reference=Reference).verdict is Verdict.PASS


@pytest.mark.parametrize("part", [{"norm": Norm()}, {"training": Training(sgd)}])
def test_listed_cases_freeze_nothing_where_all_gradients_are_asked_for(
    gloo: Engine, part: Any
) -> None:
    with pytest.raises(CaseError, match="spec's norm, or optimizer, is of all grad"):
        run(gloo, "frozen", **part)
