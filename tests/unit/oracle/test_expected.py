"""Expected values and their bounds: where the cotangents come from, and that nothing else moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tpcheck import Layout, Spec, specs
from tpcheck.case import Case
from tpcheck.oracle import noise
from tpcheck.oracle.batches import Batch
from tpcheck.oracle.effort import CLOSER, CONFIRM, FLOOR, SCREEN
from tpcheck.oracle.expected import evaluate, study
from tpcheck.oracle.noise import Noise
from tpcheck.oracle.passes import Passes
from tpcheck.oracle.pose import Posed, pose
from tpcheck.oracle.reference import draw_inputs, draw_state, references
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.boundaries import Border
from tpcheck.tensors.names import STEP, Pass

DIMS = {
    "batch": 2, "seq": 3, "hidden": 6, "intermediate": 8, "activation": "swiglu",
    "norm": "layer", "residual": True, "bias": True,
}  # fmt: skip
ROW = {"batch": 2, "seq": 3, "in_features": 6, "out_features": 8, "bias": True}
CASE = Case(dims=DIMS, dtype="bfloat16", microbatches=2, step=True, seed=5)


def several(module: Any, inputs: Any) -> dict[str, Tensor]:
    """Outputs with a gradient, without one, and of integers."""
    y = module(*inputs.values())
    return {"y": y, "ids": y.argmax(-1), "copy": y.detach() * 2, "loss": y.square().mean()}


SEVERAL = Spec(
    name="several",
    cases=[Case()],
    reference=lambda case: torch.nn.Linear(4, 6),
    inputs=lambda case, draw: {"x": draw("x", 2, 4)},
    layout=lambda case: Layout(),
    forward=several,
)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("integers", [False, True])
def test_the_least_bounds_take_no_noisy_run(
    dtype: str, integers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = replace(CASE, dtype=dtype, integers=integers)
    if integers:
        case = replace(case, dims=ROW)
    spec = specs.row_linear() if integers else specs.mlp()
    right = pose(spec, case, SCREEN)
    with monkeypatch.context() as patch:
        patch.setattr(Noise, "deviations", None)
        first = pose(spec, case, FLOOR)
    assert first.effort is FLOOR and first.closely is not None
    for least, few in zip(first.problems[0].targets, right.problems[0].targets, strict=True):
        assert torch.equal(least.value, few.value) and least.dtype == few.dtype
        exact = few.spread.sigma == 0
        assert not bool(least.spread.sigma[exact].any())
    again = first.closely(SCREEN)
    assert again.effort is SCREEN
    for one, other in zip(again.problems[0].targets, right.problems[0].targets, strict=True):
        assert torch.equal(one.spread.sigma, other.spread.sigma)


def test_numbers_that_are_not_finite_have_few_runs_at_once() -> None:
    infinite = Case(dims=ROW, family="infinite")
    assert pose(specs.row_linear(), infinite, FLOOR).effort is SCREEN
    assert pose(specs.row_linear(), replace(infinite, family="normal"), FLOOR).effort is FLOOR


def test_cotangents_are_drawn_by_the_first_run_and_no_problem_is_written_to() -> None:
    spec = specs.mlp()
    of = references(spec, CASE)
    inputs = [draw_inputs(spec, CASE, 0, m) for m in range(2)]
    problem = Problem(0, draw_state(spec, CASE, of.exact), inputs)
    passes = Passes(spec, CASE, [problem], torch.float64)
    runs = study(passes, of)
    (found,) = runs.expected(runs.begun(SCREEN), frozenset())
    assert not problem.cotangents and [list(of) for of in found.cotangents] == [["output"]] * 2
    posed = pose(spec, CASE).problems[0]
    for drawn, given in zip(found.cotangents, posed.cotangents, strict=True):
        assert torch.equal(drawn["output"], given["output"])


def test_every_float_output_has_a_cotangent_also_one_without_a_gradient() -> None:
    problem = pose(SEVERAL, Case(dtype="float32")).problems[0]
    (cotangents,) = problem.cotangents
    assert list(cotangents) == ["y", "copy", "loss"]
    assert {t.dtype for t in cotangents.values()} == {torch.float32}
    assert cotangents["loss"].shape == ()


def test_ones_stand_in_the_place_of_random_cotangents() -> None:
    problem = pose(SEVERAL, Case(), ones=True).problems[0]
    assert problem.ones and all((t == 1).all() for t in problem.cotangents[0].values())


def test_the_values_follow_from_the_problem_alone() -> None:
    problem = pose(specs.mlp(), CASE).problems[0]
    (values,) = evaluate(specs.mlp(), CASE, problem)
    assert list(values) == [(t.kind, t.name) for t in problem.targets]
    for target in problem.targets:
        assert torch.allclose(values[target.kind, target.name], target.value, rtol=1e-12)


@pytest.mark.parametrize("watch", [Pass(0), Pass(1), STEP])
def test_boundaries_are_noted_in_one_pass_and_change_no_value(watch: Pass) -> None:
    watched, plain = pose(specs.mlp(), CASE, watch=watch), pose(specs.mlp(), CASE)
    (one,), (other,) = watched.problems, plain.problems
    assert one.borders and not other.borders
    phases = {Border.of(target.name).phase for target in one.borders}
    assert phases == ({"forward"} if watch == STEP else {"forward", "backward"})
    for a, b in zip(one.targets, other.targets, strict=True):
        assert torch.equal(a.value, b.value)


def test_bounds_are_the_same_each_time_also_of_gradients_averaged_over_dp() -> None:
    spec = replace(specs.mlp(), dp_gradients="mean")
    case = replace(CASE, mesh={"dp": 2, "tp": 2})
    first, *others = [pose(spec, case).problems[0].targets for _ in range(4)]
    for again in others:
        pairs = zip(first, again, strict=True)
        assert all(torch.equal(a.spread.sigma, b.spread.sigma) for a, b in pairs)


def sigmas(posed: Posed) -> list[Tensor]:
    return [t.spread.sigma for problem in posed.problems for t in problem.targets]


#: Each dtype, and gradients that are shared or not, once.
SHARED = [("float32", False), ("float64", True)]
SHARED += [
    pytest.param(*one, marks=pytest.mark.sweep) for one in (("float64", False), ("float32", True))
]


@pytest.mark.parametrize(("dtype", "shared"), SHARED)
def test_closer_bounds_are_those_of_a_case_that_was_posed_so_closely(
    dtype: str, shared: bool
) -> None:
    spec = replace(specs.mlp(), dp_gradients="mean" if shared else "local")
    case = replace(CASE, dtype=dtype, mesh={"dp": 2, "tp": 2})
    looked, again = pose(spec, case), pose(spec, case)
    assert looked.closely is not None and again.closely is not None
    whole = {effort.patience: sigmas(pose(spec, case, effort)) for effort in (CLOSER, CONFIRM)}
    for posed, efforts in ((looked, (CLOSER, CONFIRM, CLOSER)), (again, (CONFIRM, CONFIRM))):
        for effort in efforts:
            closer = posed.closely(effort)
            assert closer.effort is effort
            pairs = zip(sigmas(closer), whole[effort.patience], strict=True)
            assert all(torch.equal(own, other) for own, other in pairs)
            assert not all(map(torch.equal, sigmas(closer), sigmas(posed)))


def test_closer_bounds_make_the_runs_that_are_not_there_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone: list[int] = []
    batches: list[Batch] = []
    right, at_once = Noise.deviations, Noise._at_once

    def deviations(own: Noise, k: int, amplitude: float = 1.0) -> Any:
        alone.append(k)
        return right(own, k, amplitude)

    def several(own: Noise, batch: Batch) -> Any:
        batches.append(batch)
        return at_once(own, batch)

    monkeypatch.setattr(noise, "over_cores", lambda runs, *_, **__: [run() for run in runs])
    monkeypatch.setattr(Noise, "deviations", deviations)
    monkeypatch.setattr(Noise, "_at_once", several)
    posed = pose(specs.mlp(), replace(CASE, dtype="float32"))
    assert alone == [0, 1, 2] and not batches and posed.closely is not None
    posed.closely(CLOSER)
    assert batches == [Batch(range(3, 10), range(0)), Batch(range(0), range(CLOSER.strained))]
    batches.clear()
    posed.closely(CONFIRM)
    assert batches == [Batch(range(10, 21), range(0)), Batch(range(21, 32), range(0))]
    assert alone == [0, 1, 2]


class Routed(torch.nn.Module):
    """Rows of x above a threshold that rounding decides go through `first`, the others through
    `second`, which are given as many rows as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        upper = (x[:, 0] / 3 * 3 > x[:, 0]) | (torch.arange(len(x)) == 0)
        y = torch.empty_like(x)
        y[upper], y[~upper] = self.first(x[upper]), self.second(x[~upper])
        return y


def test_borders_whose_rows_rounding_decides_are_not_judged() -> None:
    routed = Spec(
        name="routed",
        cases=[Case()],
        reference=lambda case: Routed(),
        inputs=lambda case, draw: {"x": draw("x", 16, 4)},
        layout=lambda case: Layout(),
    )
    for dtype in ("float64", "bfloat16"):
        borders = pose(routed, Case(dtype=dtype), watch=Pass(0)).problems[0].borders
        inside = [t for t in borders if Border.of(t.name).module == "first"]
        assert inside and all(t.spread.sigma.isinf().all() for t in inside)


def test_numbers_whose_squared_errors_vanish_have_a_bound() -> None:
    spec = Spec(
        name="tiny",
        cases=[CASE],
        reference=lambda case: lambda x: x * 1e-190 * 0.3,
        inputs=lambda case, draw: {"x": draw("x", 2, 4)},
        layout=lambda case: Layout(),
    )
    for target in pose(spec, Case(mesh={"tp": 1})).problems[0].targets:
        value = target.value
        assert (target.spread.sigma >= value.abs() * 2.0**-53).all() and value.abs().max() < 1e-180


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_numbers_below_the_normal_range_may_be_flushed(dtype: str) -> None:
    spec = Spec(
        name="linear",
        cases=[CASE],
        reference=lambda case: torch.nn.functional.linear,
        inputs=lambda case, draw: {"x": draw("x", 5, 7), "w": draw("w", 3, 7)},
        layout=lambda case: Layout(),
    )
    case = Case(dtype=dtype, mesh={"tp": 1}, family="subnormal")
    for target in pose(spec, case).problems[0].targets:
        limit = target.spread.elementwise_limit(target.value.numel())
        assert (target.value.abs() <= limit * target.spread.sigma).all(), target.name
    normal = pose(spec, replace(case, family="normal")).problems[0].targets
    assert all((t.value.abs() > 10 * t.spread.sigma).any() for t in normal)
