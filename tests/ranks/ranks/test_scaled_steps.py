"""Steps of a candidate's own optimizer under a loss that is scaled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fixtures.parallel.optimizing import MainParameters
from fixtures.parallel.scaling import ScaledMainParameters
from properties.training import SCALING, adamw, mlp_sp_main_scaled
from tpcheck import Check, Layout, Replicate, Spec, Training
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.oracle.overflow import draw_overflow
from tpcheck.runner.runner import Runner
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind

DTYPES = [pytest.param("float32", marks=pytest.mark.sweep), "bfloat16", "float16"]
CASE = Case(
    dims={"batch": 2, "seq": 4, "hidden": 16, "intermediate": 32, "activation": "gelu"}
    | {"norm": "layer", "residual": True, "bias": True},
    mesh={"tp": 2},
)


class MainGradients(ScaledMainParameters):
    """As Megatron does it: gradients are copied to those of the main copies, and these are divided;
    ``grad`` stays as backward has left it."""

    divides = True

    @torch.no_grad()
    def unscale(self) -> None:
        self.mains: dict[nn.Parameter, Tensor] = {}
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                grad = parameter.grad.to(torch.promote_types(parameter.dtype, torch.float32))
                self.mains[parameter] = grad / (self.scale if self.divides else 1.0)
        finite = all(bool(grad.isfinite().all()) for grad in self.mains.values())
        self.finite = self.everywhere(finite)

    def take(self, copy: nn.Parameter, parameter: nn.Parameter) -> None:
        copy.grad = self.mains.get(parameter)


class Forgets(MainGradients):
    """Nothing is divided: Adam's step hardly shows it."""

    divides = False


class StepsAnyway(ScaledMainParameters):
    """A step by an infinite gradient is taken: the count of steps is 2 and not 1."""

    def everywhere(self, finite: bool) -> bool:
        super().everywhere(finite)
        return True


class DecaysAnyway(ScaledMainParameters):
    """A step that is left out takes the weights nearer to zero."""

    def left_out(self) -> None:
        super().left_out()
        with torch.no_grad():
            for parameter in self.parameters.values():
                parameter *= 0.5


class StaysHigh(ScaledMainParameters):
    """The scale does not fall."""

    def left_out(self) -> None:
        self.in_a_row = 0


def check(optimizer: type[ScaledMainParameters]) -> Check:
    return replace(
        mlp_sp_main_scaled,
        optimizer=lambda module, mesh: optimizer(module, mesh, adamw, SCALING),
    )


def named(engine: Engine, optimizer: type[ScaledMainParameters]) -> tuple[str, str]:
    """The first diagnosis of it, and the tensor that it is about."""
    options = Options(examples=12, corpus=None, shrink_cases=0, degrees=(2,), dtypes=("float32",))
    found = Search(check(optimizer), engine, options).run().counterexample
    assert found is not None
    return found.diagnosis.code, found.diagnosis.message


def run(engine: Engine, optimizer: type[ScaledMainParameters], dtype: str) -> CaseResult:
    return Runner(check(optimizer), engine).run(replace(CASE, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_may_be_divided_in_copies(gloo: Engine, dtype: str) -> None:
    found = run(gloo, MainGradients, dtype)
    assert found.verdict is Verdict.PASS, found.mismatches


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_that_nobody_divides_are_told(gloo: Engine, dtype: str) -> None:
    found = run(gloo, Forgets, dtype)
    assert found.verdict is Verdict.FAIL
    assert Kind.OPTIMIZER_STATE in {mismatch.kind for mismatch in found.mismatches}


@pytest.mark.parametrize(
    ("optimizer", "code"),
    [
        (StepsAnyway, "overflow-ignored"),  # NaN
        pytest.param(DecaysAnyway, "overflow-ignored", marks=pytest.mark.sweep),
        pytest.param(StaysHigh, "unclassified", marks=pytest.mark.sweep),  # the scale alone
    ],
)
def test_counts_and_scales_are_no_sums_over_ranks_and_hang_on_no_gradient(
    gloo: Engine, optimizer: type[ScaledMainParameters], code: str
) -> None:
    found, message = named(gloo, optimizer)
    assert found == code, message


class Rounds(ScaledMainParameters):
    """What parameters hold is rounded after each step."""

    def step(self) -> None:
        super().step()
        with torch.no_grad():
            for parameter in self.parameters.values():
                parameter.copy_(parameter.bfloat16())


class Clamps(ScaledMainParameters):
    """Parameters are clamped after each step."""

    def step(self) -> None:
        super().step()
        with torch.no_grad():
            for parameter in self.parameters.values():
                parameter.clamp_(-0.3, 0.3)


class BeginsElsewhere(ScaledMainParameters):
    """The copies that step are built off."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        with torch.no_grad():
            for name, copy in self.copies.items():
                if copy is not self.parameters[name]:
                    copy *= 1.01


class Zeros(StepsAnyway):
    """Infinite gradients are zero."""

    def unscale(self) -> None:
        super().unscale()
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0)


class AtRateZero(ScaledMainParameters):
    """A step is left out by a rate of zero, which leaves NaN where the gradient is infinite."""

    def step(self) -> None:
        rates = [group["lr"] for group in self.inner.param_groups]
        for group, rate in zip(self.inner.param_groups, rates, strict=True):
            group["lr"] = rate if self.finite else 0.0
        MainParameters.step(self)
        for group, rate in zip(self.inner.param_groups, rates, strict=True):
            group["lr"] = rate
        (self.taken if self.finite else self.left_out)()


STEPS = Training(adamw, steps=2, main=torch.float32, scaling=SCALING)


@pytest.mark.parametrize(
    ("optimizer", "dtype", "ignores", "step"),
    [
        pytest.param(*about, step, marks=() if number % 2 and step else pytest.mark.sweep)
        for number, about in enumerate(
            [
                (StepsAnyway, "float32", True),
                (Zeros, "float32", True),
                (Zeros, "bfloat16", True),
                (AtRateZero, "float32", True),
                (Rounds, "float32", False),
                (Clamps, "float32", False),
                (BeginsElsewhere, "bfloat16", False),
            ]
        )
        for step in (0, 1)
    ],
)
def test_a_step_is_taken_where_numbers_have_gone_its_way(
    gloo: Engine, optimizer: type[ScaledMainParameters], dtype: str, ignores: bool, step: int
) -> None:
    """And no other: what else a step leaves wrong it leaves in one that is left out, too."""
    spec = replace(mlp_sp_main_scaled.spec, training=STEPS, norm=None)
    module = spec.reference(CASE)
    cases = (replace(CASE, dtype=dtype, seed=seed) for seed in range(100))
    of_step = (c for c in cases if (o := draw_overflow(spec, c, module)) and o.step == step)
    own = replace(check(optimizer), spec=replace(spec, cases=[next(of_step)]), clip=None)
    options = Options(examples=1, corpus=None, shrink_cases=0, degrees=(2,), dtypes=(dtype,))
    found = Search(own, gloo, options).run().counterexample
    assert found is not None
    assert (found.diagnosis.code == "overflow-ignored") is ignores, found.diagnosis.message


class ClampsGradients(StepsAnyway):
    """Infinite gradients are as large as any may be."""

    def unscale(self) -> None:
        super().unscale()
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                parameter.grad.clamp_(-0.01, 0.01)


def test_a_step_by_gradients_that_are_clamped_is_one(gloo: Engine) -> None:
    """Each number goes to the side that it would go to, though not as far as others."""
    training = replace(STEPS, optimizer=lambda named: torch.optim.SGD(named.values(), lr=0.1))
    spec = replace(mlp_sp_main_scaled.spec, training=training, norm=None)
    module = spec.reference(CASE)
    cases = (replace(CASE, dtype="float32", seed=seed) for seed in range(100))
    struck = (c for c in cases if (o := draw_overflow(spec, c, module)) and o.step == 0)
    own = replace(
        mlp_sp_main_scaled,
        spec=replace(spec, cases=[next(struck)]),
        clip=None,
        optimizer=lambda module, mesh: ClampsGradients(module, mesh, training.optimizer, SCALING),
    )
    options = Options(examples=1, corpus=None, shrink_cases=0, degrees=(2,), dtypes=("float32",))
    found = Search(own, gloo, options).run().counterexample
    assert found is not None
    assert found.diagnosis.code == "overflow-ignored", found.diagnosis.message


class Tracks(nn.Module):
    """Linear, with a running mean, by which each forward goes ``rate`` of the way."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.linear, self.rate = nn.Linear(4, 3), rate
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean += self.rate * (x.mean(0) - self.mean)
        out: Tensor = self.linear(x)
        return out


NAMES = ("linear.weight", "linear.bias", "mean")


def test_a_buffer_moves_in_a_step_that_is_left_out(gloo: Engine) -> None:
    """Forwards update it: that it is wrong says nothing of the step."""
    cases = [Case({}, dtype="float64", mesh={"tp": 2}, seed=seed) for seed in range(12)]
    spec = Spec(
        name="tracks",
        cases=cases,
        reference=lambda case: Tracks(0.1),
        inputs=lambda case, draw: {"x": draw("x", 5, 4)},
        layout=lambda case: Layout(params=dict.fromkeys(NAMES, Replicate())),
        training=Training(adamw, steps=1, scaling=SCALING),
    )
    struck = {case.seed for case in cases if draw_overflow(spec, case, Tracks(0.1)) is not None}
    assert 1 < len(struck) < len(cases)
    check = Check(spec, candidate=lambda case, mesh: Tracks(0.2))
    for case in (case for case in cases if case.seed in struck):
        one = replace(check, spec=replace(spec, cases=[case]))
        options = Options(
            examples=1, corpus=None, shrink_cases=0, degrees=(2,), dtypes=("float64",)
        )
        found = Search(one, gloo, options).run().counterexample
        assert found is not None and found.diagnosis.code != "overflow-ignored", found
