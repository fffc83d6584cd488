"""Steps of an optimizer: what a spec may ask, and what the reference leaves after each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpcheck import Check, Layout, Norm, Replicate, Shard, Training, specs
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument, LayoutError
from tpcheck.oracle.pose import Posed, pose
from tpcheck.oracle.reference import build_reference
from tpcheck.tensors.names import InPass
from tpcheck.vocabulary import Kind

DIMS = {"batch": 2, "seq": 3, "hidden": 4, "intermediate": 8, "activation": "gelu"}
CASE = Case(
    dims=DIMS | {"norm": "layer", "residual": False, "bias": True},
    mesh={"tp": 2},
    seed=4,
    microbatches=2,
)


def adamw(named: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(named.values(), lr=0.01, weight_decay=0.1)


def momentum(named: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(named.values(), lr=0.1, momentum=0.9)


def halved(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


def spec(optimizer: Any = momentum, *, norm: Norm | None = None, **options: Any) -> Any:
    training = Training(optimizer, **{"steps": 3, **options})
    return replace(specs.mlp(), training=training, norm=norm, budget=None)


def values(posed: Posed, kind: Kind, step: int) -> dict[str, Tensor]:
    """Of one step, by name."""
    named = {InPass.parse(t.name): t for t in posed.problems[0].targets if t.kind is kind}
    return {name.base: t.value for name, t in named.items() if name.at.step == step}


# ---- what may be asked


@pytest.mark.parametrize(
    "given",
    [
        {"steps": 0},
        {"steps": True},
        {"steps": 1.0},
        {"optimizer": 3},
        {"schedule": "cosine"},
        {"main": "float32"},
        {"main": torch.bfloat16},
        {"main": torch.int64},
        {"scaling": 2.0},
    ],
)
def test_what_no_training_is_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=rf"Training\({next(iter(given))}="):
        Training(**{"optimizer": adamw, **given})


def test_a_check_has_an_optimizer_only_where_the_spec_trains() -> None:
    with pytest.raises(InvalidArgument, match="has no steps of one"):
        Check(specs.mlp(), lambda case, mesh: None, optimizer=lambda module, mesh: None)
    with pytest.raises(InvalidArgument, match="training"):
        replace(specs.mlp(), training=adamw)  # type: ignore[arg-type]


def _exits(named: Any) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            spec(lambda named: None),
            "training's optimizer returned None, which has no step(), no zero_grad(), no state; ",
        ),
        (spec(lambda named: named["no such"]), "training's optimizer raised KeyError"),
        (spec(_exits), "training's optimizer raised SystemExit: 3"),
        (spec(schedule=lambda optimizer: 1 / 0), "training's schedule raised ZeroDivisionError"),
        (
            spec(lambda named: torch.optim.LBFGS(named.values())),
            "training's optimizer or its schedule raised TypeError: LBFGS.step() missing",
        ),
        (
            spec(schedule=torch.optim.lr_scheduler.ReduceLROnPlateau),
            "training's optimizer or its schedule raised TypeError",
        ),
    ],
)
def test_an_optimizer_that_can_not_be_made_is_one_line(wrong: Any, says: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        pose(wrong, CASE)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_reference_without_parameters_can_not_be_trained() -> None:
    bare = replace(
        specs.mlp(),
        training=Training(adamw),
        budget=None,
        reference=lambda case: torch.square,
        layout=lambda case: Layout(),
    )
    with pytest.raises(InvalidArgument, match="the reference has none"):
        pose(bare, CASE)


# ---- what the reference leaves


@pytest.mark.parametrize("optimizer", [adamw, momentum])
@pytest.mark.parametrize("norm", [None, Norm(most=(0.5,))])
def test_the_reference_takes_the_steps_of_torch_s_own_optimizer(
    optimizer: Any, norm: Norm | None
) -> None:
    asked = spec(optimizer, norm=norm, schedule=halved)
    posed = pose(asked, CASE)
    problem = posed.problems[0]
    module = build_reference(asked, CASE)
    module.load_state_dict(problem.params)
    own = optimizer(dict(module.named_parameters()))
    schedule = halved(own)
    for step in range(3):
        own.zero_grad()
        for i in (2 * step, 2 * step + 1):
            output = module(*(x.double() for x in problem.inputs[i].values()))
            output.backward(problem.cotangents[i]["output"].double())
        gradients = values(posed, Kind.PARAM_GRAD, step)
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-11, atol=1e-12)
        if norm is not None:
            whole = nn.utils.clip_grad_norm_(module.parameters(), problem.most[step])
            torch.testing.assert_close(values(posed, Kind.GRAD_NORM, step)["norm"], whole)
        own.step()
        schedule.step()
        left, kept = values(posed, Kind.PARAM, step), values(posed, Kind.OPTIMIZER_STATE, step)
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(left[name], parameter.detach(), rtol=1e-11, atol=1e-12)
            for key, value in own.state[parameter].items():
                wanted = value.double().reshape(kept[f"{name}.{key}"].shape)
                torch.testing.assert_close(kept[f"{name}.{key}"], wanted, rtol=1e-11, atol=1e-12)
        assert len(kept) == sum(map(len, own.state.values()))


def test_every_step_has_data_of_its_own() -> None:
    problem = pose(spec(), CASE).problems[0]
    assert len(problem.inputs) == len(problem.cotangents) == 6
    drawn = [inputs["x"] for inputs in problem.inputs]
    assert not any(torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])


def test_a_tied_parameter_is_stepped_once_and_its_state_is_under_its_first_name() -> None:
    tied = replace(specs.tied_embedding(), training=Training(momentum, steps=1), budget=None)
    dims = {"batch": 1, "seq": 2, "hidden": 3, "vocab": 5}
    posed = pose(tied, Case(dims=dims, mesh={"tp": 2}))
    left, state = values(posed, Kind.PARAM, 0), posed.problems[0].params
    gradient = values(posed, Kind.PARAM_GRAD, 0)["head.weight"]
    torch.testing.assert_close(left["head.weight"], state["head.weight"] - 0.1 * gradient)
    (kept,) = values(posed, Kind.OPTIMIZER_STATE, 0)
    assert kept == "embedding.weight.momentum_buffer" and "head.weight" in left


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_counter_is_exact(dtype: str) -> None:
    posed = pose(spec(adamw), replace(CASE, dtype=dtype))
    counters = [t for t in posed.problems[0].targets if InPass.parse(t.name).base.endswith(".step")]
    assert counters and not any(bool(t.spread.sigma.any()) for t in counters)


def test_bounds_stay_near_what_a_step_rounds() -> None:
    """Of the size of a parameter, after each of three steps; and all of it is judged."""
    posed = pose(spec(adamw), replace(CASE, dtype="float32"))
    for step in range(3):
        for target in posed.problems[0].targets:
            if target.kind is Kind.PARAM and InPass.parse(target.name).at.step == step:
                assert 0 < float(target.spread.sigma.max()) < 2e-6, target.name


def test_small_gradients_of_many_sizes_are_judged_all_the_same() -> None:
    """Rounding does not turn the sign of what AdamW takes a root of."""
    tiny = replace(CASE, dtype="bfloat16", magnitude=-6, dims=CASE.dims | {"norm": "none"})
    for seed in range(12):
        posed = pose(spec(adamw), replace(tiny, seed=seed))
        assert all(bool(t.spread.sigma.isfinite().all()) for t in posed.problems[0].targets)


# ---- how a state is placed


class Factored(torch.optim.Optimizer):
    """Keeps of a gradient the largest of each row, in two forms."""

    def __init__(self, named: Mapping[str, nn.Parameter], keepdim: bool) -> None:
        super().__init__(list(named.values()), {"keepdim": keepdim})

    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                largest = parameter.grad.amax(-1, keepdim=group["keepdim"])
                self.state[parameter] = {"row": largest, "count": 1, "name": "a row"}


def test_a_state_follows_its_parameter_where_its_shape_says_how() -> None:
    posed = pose(spec(lambda named: Factored(named, keepdim=True), steps=1), CASE)
    kept = {t.name: t.entry for t in posed.problems[0].targets if t.kind is Kind.OPTIMIZER_STATE}
    assert kept["up.weight.row"] == {"tp": Shard(0)}
    assert kept["down.weight.row"] == {"tp": Replicate()}  # its one column is on every rank
    assert kept["up.weight.count"] == Replicate()
    assert not any(name.endswith(".name") for name in kept)


def test_where_its_shape_does_not_the_layout_does() -> None:
    flat = spec(lambda named: Factored(named, keepdim=False), steps=1)
    with pytest.raises(LayoutError, match=r"state 'up.weight.row' has the shape \(8,\)"):
        pose(flat, CASE)
    named = {"up.weight.row": Shard(0), "down.weight.row": Replicate()}
    layout = flat.layout

    def with_states(case: Case) -> Layout:
        return replace(layout(case), states=named)

    kept = pose(replace(flat, layout=with_states), CASE).problems[0].targets
    assert next(t.entry for t in kept if t.name == "up.weight.row") == Shard(0)


# ---- main parameters


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_parameter_that_holds_as_much_has_no_main_parameter(dtype: str) -> None:
    case = replace(CASE, dtype=dtype)
    kept, plain = (
        values(pose(asked, case), Kind.OPTIMIZER_STATE, 0).keys()
        for asked in (spec(adamw, main=torch.float32), spec(adamw))
    )
    assert kept == plain and kept


def test_main_parameters_take_the_steps_and_parameters_are_them_rounded() -> None:
    case = replace(CASE, dtype="bfloat16")
    (problem,) = pose(spec(adamw, main=torch.float32), case).problems
    of = {(t.kind, t.name): t for t in problem.targets}
    for step in ("", "@step2", "@step3"):
        main = of[Kind.OPTIMIZER_STATE, f"up.weight.main{step}"]
        rounded = of[Kind.PARAM, f"up.weight{step}"]
        assert torch.equal(main.value, rounded.value), "in float64 nothing is rounded"
        assert (main.dtype, rounded.dtype) == (torch.float32, torch.bfloat16)
        size = rounded.value.abs().mean()
        assert rounded.spread.sigma.mean() > max(2.0**-12 * size, main.spread.sigma.mean())
    first = of[Kind.OPTIMIZER_STATE, "up.weight.main"]
    assert first.spread.sigma.median() < 2.0**-20, "whose update is the rate, whatever the gradient"


def test_what_an_optimizer_keeps_of_a_copy_is_the_parameter_s() -> None:
    case = replace(CASE, dtype="bfloat16")
    (problem,) = pose(spec(adamw, main=torch.float32), case).problems
    names = {t.name for t in problem.targets if t.kind is Kind.OPTIMIZER_STATE}
    assert {"up.weight.main", "up.weight.exp_avg", "up.weight.step"} <= names
    by_name = {t.name: t for t in problem.targets}
    assert by_name["up.weight.exp_avg"].dtype is torch.float32
