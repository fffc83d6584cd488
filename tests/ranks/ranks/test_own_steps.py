"""A step of a candidate's own optimizer, beside what the spec's makes of the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fixtures.mutants.steps import ADAMW, MAIN
from fixtures.parallel.optimizing import Central, Lars, MainParameters, ParallelLars
from fixtures.parallel.zero import ShardedState, data_parallel
from properties import mlp
from properties.language_model import language_model
from tpcheck import Check, Training
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.protocol.optimizing import Optimizing
from tpcheck.ranks import own_steps
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind

SIZES = {"batch": 2, "seq": 4, "hidden": 16, "intermediate": 32}
MLP = Case(
    dims=SIZES | {"activation": "gelu", "norm": "none", "residual": False, "bias": True},
    mesh={"tp": 2},
    dtype="bfloat16",
)
MODEL = replace(
    MLP,
    dims={
        **(MLP.dims | {"seq": 8, "norm": "layer", "layers": 1, "vocab": 32, "bias": False}),
        **{"heads": 4, "kv_heads": 2, "head_dim": 4, "tied": False, "ignored": False},
        **{"qk_norm": False, "rotary": False, "causal": False},
    },
)
LATE = replace(MAIN, steps=5)
MATRIX = "blocks.0.attention.q_proj.weight"
Named = Mapping[str, nn.Parameter]


class Late(MainParameters):
    """In the fifth step the main copy of one matrix decays once more."""

    steps = 0

    @torch.no_grad()
    def step(self) -> None:
        self.steps += 1
        if self.steps == LATE.steps:
            self.copies[MATRIX].mul_(1 - 1e-4)
        super().step()


class FarOff(MainParameters):
    """In the fifth step a matrix is three units beside its main copy, rounded."""

    steps = 0

    def step(self) -> None:
        self.steps += 1
        super().step()

    def give_back(self, copy: nn.Parameter, parameter: nn.Parameter) -> None:
        super().give_back(copy, parameter)
        if parameter is self.parameters[MATRIX] and self.steps == LATE.steps:
            parameter.mul_(1 + 3 * 2.0**-7)


def run(engine: Engine, check: Check, case: Case, training: Training, optimizer: Any) -> CaseResult:
    """One case of a check whose optimizer is its own."""
    spec = replace(check.spec, training=training, budget=None)
    own = replace(check, spec=spec, optimizer=optimizer, communication=False)
    return Runner(own, engine).run(case)


def _model(engine: Engine, optimizer: type[MainParameters]) -> CaseResult:
    made = lambda module, _: optimizer(module, ADAMW.optimizer)  # noqa: E731
    return run(engine, language_model, MODEL, LATE, made)


@pytest.mark.parametrize(
    ("optimizer", "kind", "name"),
    [
        (Late, Kind.OPTIMIZER_STATE, f"{MATRIX}.main@step5"),
        (FarOff, Kind.PARAM, f"{MATRIX}@step5"),
    ],
)
def test_what_rounding_of_earlier_steps_hides_is_outside_of_its_own(
    gloo: Engine, optimizer: type[MainParameters], kind: Kind, name: str
) -> None:
    wrong = _model(gloo, optimizer)
    assert {(m.kind, m.tensor) for m in wrong.mismatches} == {(kind, name)}
    assert {m.rank for m in wrong.mismatches} == {0, 1}
    assert not wrong.looked_again  # it is evidence by itself


def test_right_steps_of_main_copies_are_inside(gloo: Engine) -> None:
    right = _model(gloo, MainParameters)
    assert right.verdict is Verdict.PASS, right.mismatches


def _of_whole(named: Named) -> torch.optim.Optimizer:
    assert all(parameter.shape[0] % 2 == 0 for parameter in named.values()), "a part"
    return torch.optim.SGD(named.values(), lr=0.01)


class _Counting(torch.optim.Optimizer):
    """SGD with momentum and a warm-up, whose steps are counted in its group; of what it keeps of a
    parameter one tensor is in a list, and one is none yet."""

    def __init__(self, named: Named) -> None:
        super().__init__(list(named.values()), {"count": 0})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        group["count"] += 1
        for parameter in group["params"]:
            grad, kept = parameter.grad, self.state[parameter]
            kept.setdefault("moments", [torch.zeros_like(parameter)])
            kept.setdefault("largest", None)
            kept["moments"][0].mul_(0.9).add_(grad)
            parameter.sub_(kept["moments"][0], alpha=0.01 * group["count"])


class _Freeing(torch.optim.SGD):
    """SGD with momentum that frees gradients once it has taken its step."""

    def __init__(self, named: Named) -> None:
        super().__init__(list(named.values()), lr=0.01, momentum=0.9)

    def step(self) -> None:  # type: ignore[override]
        super().step()
        super().zero_grad()


class _Clipping(torch.optim.SGD):
    """SGD that itself clips by the norm of all gradients, where that is large."""

    def __init__(self, named: Named) -> None:
        super().__init__(list(named.values()), lr=0.01)

    def step(self) -> None:  # type: ignore[override]
        grads = [p.grad for p in self.param_groups[0]["params"] if p.grad is not None]
        torch.nn.utils.clip_grads_with_norm_(
            self.param_groups[0]["params"], 8.0, torch.nn.utils.get_total_norm(grads)
        )
        super().step()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda named: torch.optim.AdamW(named.values(), lr=0.01), True),
        (lambda named: torch.optim.SGD(named.values(), lr=0.01, momentum=0.9), True),
        (_Counting, True),
        (_Freeing, True),
        (Lars, False),  # a rate by the norm of the whole
        (_Clipping, False),  # the norm of a part may be below what that of the whole is above
        (lambda named: torch.optim.Adafactor(named.values()), False),
        (_of_whole, False),
        (Central, False),
    ],
)
def test_only_what_steps_each_element_by_itself_is_told(
    threads: Engine, monkeypatch: pytest.MonkeyPatch, make: Callable[[Named], Any], told: bool
) -> None:
    held: list[str] = []
    hold = own_steps.OwnSteps._hold

    def noting(self: Any, kind: Kind, name: str, *rest: Any) -> None:
        held.append(name)
        hold(self, kind, name, *rest)

    monkeypatch.setattr(own_steps.OwnSteps, "_hold", noting)
    run = _Rank(make)
    own = own_steps.OwnSteps(run, run.module, run.training)
    for step in range(2):
        run.backward()
        own.begin(run.params, step)
        run.optimizer.step()
        own.end(run.params, run.kept(), step)
    assert run.report.mismatches == [] and bool(held) is told


class _Wide(torch.optim.Optimizer):
    """SGD with momentum that is kept in float32, beside parameters in float16; in the second step
    an element of the weight is a tenth too large."""

    def __init__(self, named: Named, first: float) -> None:
        super().__init__(list(named.values()), {"count": 0})
        self.first = first

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        group["count"] += 1
        for parameter in group["params"]:
            grad, kept = parameter.grad.float(), self.state[parameter]
            kept.setdefault("momentum_buffer", torch.zeros_like(grad)).mul_(0.9).add_(grad)
            parameter.copy_(parameter.float() - 0.01 * kept["momentum_buffer"])
            if group["count"] == 1:
                kept["momentum_buffer"][0, 0] = self.first
            if group["count"] == 2:
                parameter[1, 1] *= 1.1


@pytest.mark.parametrize(("first", "told"), [(1.3e-6, True), (1e-9, True), (1e6, False)])
def test_a_state_that_holds_more_than_parameters_do_is_told_where_these_hold_it(
    threads: Engine, first: float, told: bool
) -> None:
    run = _Rank(lambda named: torch.optim.SGD(named.values(), lr=0.01, momentum=0.9))
    run.case, run.module = replace(MLP, dtype="float16"), run.module.half()
    run.optimizer = _Wide(run.params, first)
    del run.targets[Kind.PARAM, "weight"]
    own = own_steps.OwnSteps(run, run.module, run.training)
    for step in range(2):
        run.module.weight.grad = torch.randn(3, 4).half()
        own.begin(run.params, step)
        run.optimizer.step()
        own.end(run.params, run.kept(), step)
    assert [m.tensor for m in run.report.mismatches] == ["weight@step2"] * told
    assert own._trial is not None, "of others it is told"


def test_state_that_is_kept_in_pieces_is_left_to_the_reference(threads: Engine) -> None:
    check = replace(mlp.mlp_sp, spec=data_parallel(mlp.mlp_sp.spec))
    case = replace(MLP, mesh={"dp": 2, "tp": 2}, dtype="float32")
    right = run(
        threads,
        check,
        case,
        ADAMW,
        lambda module, mesh: ShardedState(module, mesh, ADAMW.optimizer),
    )
    assert right.verdict is Verdict.PASS, right.mismatches


def test_an_optimizer_for_whole_parameters_is_left_to_the_reference(threads: Engine) -> None:
    training = Training(Lars, steps=2)
    right = run(threads, mlp.mlp, replace(MLP, dtype="float32"), training, ParallelLars)
    assert right.verdict is Verdict.PASS, right.mismatches


@pytest.mark.parametrize("make", [_Counting, _Clipping])
def test_what_an_optimizer_keeps_beside_its_numbers_goes_on_as_in_the_candidates(
    threads: Engine, make: type[torch.optim.Optimizer]
) -> None:
    alone = replace(MLP, mesh={"tp": 1}, dtype="float64")
    made = lambda module, _: make(dict(module.named_parameters()))  # noqa: E731
    right = run(threads, mlp.mlp, alone, Training(make, steps=4), made)
    assert right.verdict is Verdict.PASS, right.mismatches


class _Rank:
    """What `OwnSteps` asks of a rank, of one weight whose rows two ranks have."""

    def __init__(self, make: Callable[[Named], Any]) -> None:
        from tpcheck.protocol.messages import RankReport
        from tpcheck.protocol.problem import Problem

        torch.manual_seed(0)
        whole = torch.randn(6, 4, dtype=torch.float64)
        self.module = nn.Linear(4, 3, bias=False, dtype=torch.float64)
        self.module.weight.data.copy_(whole[:3])
        self.params = dict(self.module.named_parameters())
        self.training = Training(make)
        self.optimizer = (
            torch.optim.AdamW(self.params.values()) if make is _of_whole else make(self.params)
        )
        self.case, self.rank, self.report = replace(MLP, dtype="float64"), 0, RankReport(0)
        self.parts = {"optimizer": make}
        self.problem = Problem(params={"weight": whole})
        self.judge = self
        self.decided: set[Any] = set()
        self.targets = {(Kind.PARAM_GRAD, f"weight{at}"): _Whole() for at in ("", "@step2")}
        self.targets |= {(Kind.PARAM, f"weight{at}"): _Whole() for at in ("", "@step2")}

    def part(self, name: str, whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return whole[:3]

    def backward(self) -> None:
        self.optimizer.zero_grad()
        self.module(torch.randn(5, 4, dtype=torch.float64)).square().sum().backward()

    def kept(self) -> dict[str, torch.Tensor]:
        return Optimizing(self.optimizer, None, "the check's optimizer").state(self.params)


class _Whole:
    entry = ()
