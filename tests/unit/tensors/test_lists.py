"""Operators over lists of tensors: what each tensor gets is what it gets alone, errors included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.tensors.lanes import Apart, in_run, lanes_of, write
from tpcheck.tensors.lists import in_lists

F64 = torch.float64
SHAPES = ((3, 5), (7,), ())


def given(seed: int) -> list[Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, dtype=F64, generator=numbers) + 0.5 for shape in SHAPES]


def noise(dtype: torch.dtype = torch.bfloat16) -> RoundingNoise:
    return RoundingNoise(Arithmetic(dtype, 1), torch.Generator().manual_seed(0))


OPERATORS: dict[str, tuple[Any, ...]] = {
    "add": (given(1),),
    "sub": (given(1),),
    "mul": (0.25,),
    "div": ([0.5, 0.5, 0.5],),
    "lerp": (given(1), 0.3),
    "addcmul": (given(1), given(2), 0.1),
    "addcdiv": (given(1), given(2), [0.1, 0.1, 0.1]),
    "sqrt": (),
    "rsqrt": (),
    "pow": (1.5,),
    "maximum": (given(1),),
    "neg": (),
}


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_gives_what_torch_gives_and_rounds(name: str, writes: bool) -> None:
    of_lists = getattr(torch, f"_foreach_{name}{'_' * writes}")
    due = of_lists(start := given(0), *OPERATORS[name])
    due = start if writes else due
    with noise():
        out = of_lists(own := given(0), *OPERATORS[name])
    found: Sequence[Tensor] = own if writes else out
    for one, right, shape in zip(found, due, SHAPES, strict=True):
        off = (one - right).abs()
        assert one.shape == shape and float(off.max()) < 6 * 2.0**-8 * float(right.abs().max())
        assert name in ("maximum", "neg") or bool((off > 0).all()), "each number has its error"


@pytest.mark.parametrize(
    "others", [[0.5, 0.25, 2.0], [torch.ones(5, dtype=F64), *given(1)[1:]]], ids=["own", "spread"]
)
def test_lists_that_are_no_one_tensor_are_taken_one_by_one(others: list[Any]) -> None:
    due = torch._foreach_mul(given(0), others)
    with noise(torch.float64):
        found = torch._foreach_mul(given(0), others)
    for one, right in zip(found, due, strict=True):
        assert one.shape == right.shape and not torch.equal(one, right)
        torch.testing.assert_close(one, right, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("addcdiv", (given(1), given(2), torch.tensor([0.5, 0.25, 2.0]))),
        ("addcmul", (given(1), given(2), torch.tensor([0.5, 0.25, 2.0]))),
        ("maximum", (0.75,)),
        ("minimum", ([0.75, 1.0, 0.5],)),
    ],
)
def test_other_forms_of_an_operator_are_taken_too(name: str, others: tuple[Any, ...]) -> None:
    of_lists = getattr(torch, f"_foreach_{name}")
    with noise(torch.float64):
        found = of_lists(given(0), *others)
    for one, right in zip(found, of_lists(given(0), *others), strict=True):
        torch.testing.assert_close(one, right, rtol=1e-10, atol=0.0)


def test_gradients_that_are_sparse_are_taken_one_by_one() -> None:
    sparse = [torch.tensor([1.0, 0.0, 3.0], dtype=F64).to_sparse(), given(0)[1]]
    with noise():
        found = torch._foreach_neg(sparse)
    assert torch.equal(found[0].to_dense(), -sparse[0].to_dense())
    assert torch.equal(found[1], -sparse[1])


def test_a_norm_is_each_tensor_s_and_rounds_as_a_sum() -> None:
    with noise(torch.float64):
        found = torch._foreach_norm(given(0), 2)
    for one, tensor in zip(found, given(0), strict=True):
        assert one.shape == () and one != tensor.norm()
        torch.testing.assert_close(one, tensor.norm(), rtol=1e-10, atol=0.0)


def test_a_counter_counts() -> None:
    steps = [torch.tensor(3.0), torch.tensor(3.0)]
    with noise():
        torch._foreach_add_(steps, torch.tensor(1.0), alpha=1.0)
    assert [float(step) for step in steps] == [4.0, 4.0]


def test_several_runs_stay_apart() -> None:
    lanes = [lanes_of(tensor, 2) for tensor in given(0)]
    for number, tensor in enumerate(lanes):
        tensor.each[1] += number
    with noise(torch.float64):
        torch._foreach_add_(lanes, given(1))
    for number, (tensor, first, other) in enumerate(zip(lanes, given(0), given(1), strict=True)):
        for run in (0, 1):
            due = first + run * number + other
            torch.testing.assert_close(in_run(tensor, run), due, rtol=1e-10, atol=0.0)
    with pytest.raises(Apart, match="into a tensor of all"):
        write(torch.zeros(3), lanes_of(torch.zeros(3), 2))


@pytest.mark.parametrize("made", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adam])
def test_an_optimizer_steps_as_one_tensor_at_a_time_does(made: Any) -> None:
    left = []
    for lists in (True, False):
        parameters = [nn.Parameter(tensor) for tensor in given(0)]
        optimizer = made(parameters, lr=0.1, weight_decay=0.01)
        optimizer = in_lists(optimizer) if lists else optimizer
        assert optimizer.param_groups[0]["foreach"] is (True if lists else None)
        for step in range(3):
            for parameter, gradient in zip(parameters, given(step), strict=True):
                parameter.grad = gradient
            optimizer.step()
        left.append(parameters)
    for one, other in zip(*left, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize(
    "options",
    [
        {"lr": torch.tensor(0.1)},
        {"betas": (torch.tensor(0.9), torch.tensor(0.99))},
        {"differentiable": True},
    ],
    ids=["rate", "betas", "differentiable"],
)
def test_options_that_torch_refuses_of_lists_have_none(options: dict[str, Any]) -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = in_lists(torch.optim.AdamW([parameter], **options))
    assert optimizer.param_groups[0]["foreach"] is None
    if "differentiable" not in options:  # torch takes no step of a leaf then
        parameter.grad = torch.ones(2)
        optimizer.step()
        assert bool((parameter < 1).all())


def test_what_was_said_of_lists_holds() -> None:
    """And of those whose steps are other formulas there."""
    parameters = [nn.Parameter(torch.ones(2))]
    kept = in_lists(torch.optim.SGD(parameters, lr=0.1, foreach=False))
    assert kept.param_groups[0]["foreach"] is False and in_lists(made := object()) is made
    other = in_lists(torch.optim.Adafactor(parameters, lr=0.1))
    assert other.param_groups[0]["foreach"] is None
