"""Posed cases: the same numbers everywhere, nothing at its default, every gradient expected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tpcheck import specs
from tpcheck.case import Case
from tpcheck.errors import CaseError, InvalidArgument, LayoutError
from tpcheck.layout import Layout
from tpcheck.oracle.pose import Posed, pose
from tpcheck.placement import Partial, Replicate, Shard
from tpcheck.protocol.bundle import read_bundle, write_bundle
from tpcheck.protocol.conventions import LEARNING_RATE, named_outputs
from tpcheck.protocol.problem import Target
from tpcheck.spec import Spec
from tpcheck.training import Training

MLP = {
    "batch": 2, "seq": 3, "hidden": 6, "intermediate": 8, "activation": "swiglu",
    "norm": "layer", "residual": True, "bias": True,
}  # fmt: skip
CASE = Case(dims=MLP, mesh={"tp": 2}, seed=5)
EXPANDED = replace(CASE, memory="expanded", microbatches=2)


class Small(nn.Module):
    """x [2, 4] → y [2, 6]; `spare` is never used, `steps` and `gain` are buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 6)
        self.norm = nn.LayerNorm(6)
        self.spare = nn.Parameter(torch.ones(3))
        self.register_buffer("gain", torch.ones(6))
        self.register_buffer("steps", torch.arange(3))

    def forward(self, x: Tensor) -> Any:
        return self.norm(self.up(x)) * self.gain


def spec(layout: Layout | None = None, module: Any = Small, **more: Any) -> Spec:
    return Spec(
        name="small",
        cases=[Case()],
        reference=lambda case: module(),
        inputs=lambda case, draw: {"x": draw("x", 2, 4)},
        layout=lambda case: layout or Layout(params={"up.*": Shard(0)}),
        **more,
    )


def targets(posed: Posed, d: int = 0) -> dict[tuple[str, str], Target]:
    return {(t.kind, t.name): t for t in posed.problems[d].targets}


def numbers(posed: Posed) -> dict[str, Tensor]:
    problem = posed.problems[0]
    found = {f"param {n}": t for n, t in problem.params.items()}
    for what in ("inputs", "cotangents"):
        for m, tensors in enumerate(getattr(problem, what)):
            found |= {f"{what} {m} {n}": t for n, t in tensors.items()}
    return found | {f"{t.kind} {t.name}": t.value for t in problem.targets}


def test_every_degree_and_mesh_sees_the_same_numbers() -> None:
    two = numbers(pose(specs.mlp(), CASE))
    for mesh in ({"tp": 1}, {"tp": 4}, {"dp": 2, "tp": 2}):
        other = numbers(pose(specs.mlp(), replace(CASE, mesh=mesh)))
        assert two.keys() == other.keys()
        assert all(torch.equal(two[n], other[n]) for n in two)
    changed = numbers(pose(specs.mlp(), replace(CASE, seed=6)))
    assert not any(torch.equal(two[n], changed[n]) for n in two)


def test_each_dp_group_has_the_same_parameters_and_other_data() -> None:
    first, second = pose(specs.mlp(), replace(CASE, mesh={"dp": 2, "tp": 2})).problems
    assert all(torch.equal(first.params[n], second.params[n]) for n in first.params)
    assert not torch.equal(first.inputs[0]["x"], second.inputs[0]["x"])
    assert not torch.equal(first.cotangents[0]["output"], second.cotangents[0]["output"])


def test_nothing_starts_at_its_default() -> None:
    params = pose(specs.mlp(), CASE).problems[0].params
    assert {"norm.weight", "norm.bias", "up.bias", "down.bias"} <= set(params)
    for tensor in params.values():
        assert (tensor != 0).all() and not (tensor == 1).all()
    small = pose(spec(), Case()).problems[0].params
    assert (small["gain"] != 1).all() and torch.equal(small["steps"], torch.arange(3))


def test_expected_values_are_those_of_the_drawn_numbers() -> None:
    posed = pose(specs.row_linear(), Case(dims={
        "batch": 1, "seq": 2, "in_features": 4, "out_features": 3, "bias": True}))  # fmt: skip
    problem, found = posed.problems[0], targets(posed)
    x, seed = problem.inputs[0]["x"], problem.cotangents[0]["output"]
    weight, bias = problem.params["weight"], problem.params["bias"]
    close = {
        ("output", "output"): F.linear(x, weight, bias),
        ("input_grad", "x"): seed @ weight,
        ("param_grad", "weight"): seed.flatten(0, 1).T @ x.flatten(0, 1),
        ("param_grad", "bias"): seed.sum((0, 1)),
    }
    assert close.keys() == found.keys()
    assert all(torch.allclose(found[k].value, v, rtol=1e-13) for k, v in close.items())


def test_gradients_add_up_over_microbatches_and_the_step_follows_them() -> None:
    once = pose(specs.mlp(), CASE)
    posed = pose(specs.mlp(), replace(CASE, microbatches=2, step=True))
    found, alone, problem = targets(posed), targets(once), posed.problems[0]
    names = {n for kind, n in found if kind == "output"}
    assert names == {"output", "output@1", "output@step"}
    assert {n for kind, n in found if kind == "input_grad"} == {"x", "x@1"}
    assert not torch.equal(problem.inputs[0]["x"], problem.inputs[1]["x"])
    for name, param in problem.params.items():
        grad = found["param_grad", name].value
        assert not torch.equal(grad, alone["param_grad", name].value)
        want = param - LEARNING_RATE * grad
        assert torch.allclose(found["param", name].value, want, rtol=1e-13)


def test_the_gradient_of_an_unused_parameter_is_zero_and_not_missing() -> None:
    found = targets(pose(spec(), Case()))
    assert torch.equal(found["param_grad", "spare"].value, torch.zeros(3, dtype=torch.float64))
    assert float(found["param_grad", "spare"].spread.sigma.max()) == 0.0
    assert (found["param_grad", "up.weight"].value != 0).all()


def test_expanded_memory_repeats_the_rows_of_inputs_and_cotangents() -> None:
    for problem in (pose(specs.mlp(), EXPANDED).problems[0], pose(specs.mlp(), CASE).problems[0]):
        equal = [
            torch.equal(t[0], t[1])
            for group in (*problem.inputs, *problem.cotangents)
            for t in group.values()
        ]
        assert set(equal) == {len(problem.inputs) == 2}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_numbers_are_rounded_to_the_dtype_and_expectations_are_not(dtype: str) -> None:
    case = replace(CASE, dtype=dtype)
    posed = pose(specs.mlp(), case)
    assert {t.dtype for t in posed.problems[0].params.values()} == {getattr(torch, dtype)}
    for target in posed.problems[0].targets:
        assert target.value.dtype == torch.float64 and target.dtype == getattr(torch, dtype)
        assert target.spread.sigma.isfinite().all() and (target.spread.sigma > 0).all()
    magnified = pose(specs.mlp(), replace(case, magnitude=4)).problems[0].inputs[0]["x"]
    assert torch.equal(magnified, 16 * posed.problems[0].inputs[0]["x"])


def test_posing_a_case_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    pose(spec(), Case())
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    "case", [EXPANDED, replace(CASE, mesh={"dp": 2, "tp": 2}, dtype="bfloat16", step=True)]
)
def test_a_bundle_comes_back_bit_for_bit(case: Case, tmp_path: Path) -> None:
    posed = pose(specs.mlp(), case)
    write_bundle(posed.problems, tmp_path / "case.safetensors")
    entries = {(t.kind, t.name): t.entry for t in posed.problems[0].targets}
    for d, problem in enumerate(posed.problems):
        again = read_bundle(tmp_path / "case.safetensors", d, entries, "cpu")
        assert numbers(Posed(case, [again], {}, {}, {})).keys() == numbers(posed).keys()
        assert all(torch.equal(problem.params[n], again.params[n]) for n in problem.params)
        for mine, theirs in zip(problem.targets, again.targets, strict=True):
            assert (mine.kind, mine.name, mine.entry, mine.dtype) == (
                theirs.kind, theirs.name, theirs.entry, theirs.dtype
            )  # fmt: skip
            assert torch.equal(mine.value, theirs.value)
            assert torch.equal(mine.spread.sigma, theirs.spread.sigma)
            assert mine.spread == replace(theirs.spread, sigma=mine.spread.sigma)
            assert mine.spread.largest < torch.inf
        for before, after in (
            (problem.inputs, again.inputs), (problem.cotangents, again.cotangents)
        ):  # fmt: skip
            assert len(before) == len(after)
            for one, two in zip(before, after, strict=True):
                assert all(torch.equal(one[n], two[n]) for n in one)


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(params={"up.wieght": Shard(0)}), ["params", "up.wieght", "'up.weight'"]),
        (Layout(inputs={"y": Shard(0)}), ["inputs", "'y'"]),
        (Layout(outputs={"out": Shard(0)}), ["outputs", "'out'", "'output'"]),
        (Layout(grads={"up.b": Partial()}), ["grads", "'up.b'", "'up.bias'"]),
        (Layout(params={"up.bias": Shard(1)}), ["up.bias", "dim 1", "(6,)"]),
        (Layout(outputs={"output": Shard(1, even=True)}), ["output", "size 6", "tp=4"]),
        (Layout(inputs={"x": {"dp": Shard(0)}}), ["inputs", "'x'", "leave dp out"]),
        (Layout(outputs={"output": {"dp": Shard(0)}}), ["outputs", "'output'", "leave dp out"]),
    ],
)
def test_a_wrong_layout_names_the_tensor(layout: Layout, words: list[str]) -> None:
    with pytest.raises(LayoutError) as caught:
        pose(spec(layout), Case(mesh={"tp": 4}))
    assert all(word in str(caught.value) for word in words)


def test_what_the_spec_rules_out_is_said_before_anything_is_built() -> None:
    with pytest.raises(CaseError, match="too narrow"):
        pose(spec(module=None, requires=lambda case: "too narrow"), Case())


def test_an_output_that_holds_no_tensor_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="returned a object"):
        named_outputs(object())


def test_a_pattern_in_grads_leaves_other_gradients_where_their_parameter_lies() -> None:
    layout = Layout(params={"up.*": Shard(0)}, grads={"norm.*": Partial()})
    found = targets(pose(spec(layout), Case()))
    assert found["param_grad", "norm.weight"].entry == Partial()
    assert found["param_grad", "up.weight"].entry == Shard(0)
    assert found["input_grad", "x"].entry == Replicate()


def test_an_integer_output_can_be_laid_out() -> None:
    def both(module: Small, inputs: Any) -> dict[str, Tensor]:
        y = module(*inputs.values())
        return {"y": y, "ids": y.argmax(1)}

    found = targets(pose(spec(Layout(outputs={"ids": Shard(0)}), forward=both), Case()))
    assert found["output", "ids"].entry == Shard(0)


def test_a_scalar_loss_can_be_posed() -> None:
    def loss(module: Small, inputs: Any) -> dict[str, Tensor]:
        return {"loss": module(*inputs.values()).square().mean()}

    assert targets(pose(spec(forward=loss), Case()))["loss", "loss"].value.shape == ()


@pytest.mark.parametrize(("how", "divisor"), [("sum", 1), ("mean", 2)])
def test_gradients_are_combined_over_dp_as_the_spec_says(how: str, divisor: int) -> None:
    case = replace(CASE, mesh={"dp": 2, "tp": 2}, microbatches=2, step=True)
    apart = pose(specs.mlp(), case)
    together = pose(replace(specs.mlp(), dp_gradients=how), case)
    assert together.shared and not apart.shared
    for key, target in targets(together).items():
        both = [targets(posed, 1)[key].value for posed in (apart, together)]
        own = targets(apart)[key].value
        if target.kind == "param_grad":
            want = (own + both[0]) / divisor
            assert torch.allclose(target.value, want, rtol=1e-12, atol=0)
            assert torch.equal(both[1], target.value)
        elif target.kind == "param":
            grad = targets(together)["param_grad", target.name].value
            start = together.problems[0].params[target.name].double()
            assert torch.allclose(target.value, start - LEARNING_RATE * grad, rtol=1e-12, atol=0)
        elif "@step" not in target.name:  # what belongs to the data is not combined
            assert torch.equal(target.value, own)


def test_an_unknown_way_to_combine_gradients_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"dp_gradients='average'.*local, mean, sum"):
        replace(specs.mlp(), dp_gradients="average")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"inputs": lambda case, draw: {"x@1": draw("x", 2)}}, "input 'x@1'"),
        ({"forward": lambda module, inputs: {"y@step": inputs["x"]}}, "output 'y@step'"),
    ],
)
def test_names_that_read_as_another_pass_are_refused(change: dict[str, Any], what: str) -> None:
    spec = Spec(
        name="named",
        cases=[Case()],
        reference=lambda case: lambda x: x,
        inputs=lambda case, draw: {"x": draw("x", 2)},
        layout=lambda case: Layout(),
    )
    assert pose(spec, Case()).problems
    with pytest.raises(InvalidArgument, match=what):
        pose(replace(spec, **change), Case())


def test_what_forwards_leave_in_buffers_is_of_the_last_step() -> None:
    """Looked at again, fewer steps are posed, whose buffers are others."""
    training = Training(lambda named: torch.optim.SGD(named.values(), lr=0.1), steps=3)
    found = targets(pose(spec(training=training), CASE))
    assert ("param", "steps@step3") in found and ("param", "steps") not in found
    assert ("param", "steps") in targets(pose(spec(), CASE))
