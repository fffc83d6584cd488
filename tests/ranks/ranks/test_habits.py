"""What a model does besides its results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_reduce

from tpcheck import Case, Check, Layout, Replicate, Spec
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict

CASE = Case(mesh={"tp": 2}, microbatches=3, dtype="float32", step=True)


class Table(nn.Module):
    """(x [B, H], ids [B]) → x + weight[ids], by `how`."""

    def __init__(self, how: Callable[[Any, Tensor, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(5, 4))
        self.how = how
        self.memory: dict[str, Any] = {}

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        return x + self.weight[ids] if self.how is None else self.how(self, x, ids)


def check(how: Callable[[Any, Tensor, Tensor], Tensor], *overwrites: str) -> Check:
    spec = Spec(
        name="table",
        cases=[CASE],
        reference=lambda case: Table(),
        inputs=lambda case, draw: {"x": draw("x", 3, 4), "ids": draw.integers("ids", 0, 5, 3)},
        layout=lambda case: Layout(params={"weight": Replicate()}),
        overwrites=overwrites,
    )
    return Check(spec, lambda case, mesh: Table(how))


def right(module: Any, x: Tensor, ids: Tensor) -> Tensor:
    return x + module.weight[ids]  # type: ignore[no-any-return]


def changes_integers(module: Any, x: Tensor, ids: Tensor) -> Tensor:
    y = x + module.weight[ids.clone()]
    ids.clamp_(max=0)
    return y  # type: ignore[no-any-return]


def changes_data(module: Any, x: Tensor, ids: Tensor) -> Tensor:
    y = x + module.weight[ids]
    x.data.mul_(2)
    return y  # type: ignore[no-any-return]


class _Spoils(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        return y.clone()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        own = dy.clone()
        dy.zero_()
        return own


def changes_upstream(module: Any, x: Tensor, ids: Tensor) -> Tensor:
    return _Spoils.apply(x + module.weight[ids])


class _IntoBuffers(torch.autograd.Function):
    """What it returns is in memory of the module's dict, forward or backward."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, memory: dict[str, Tensor], which: str) -> Tensor:
        ctx.memory, ctx.which = memory, which
        return _into(memory, y) if which == "output" else y.clone()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        return (_into(ctx.memory, dy) if ctx.which == "gradient" else dy.clone()), None, None


class _IntoPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, place: Tensor) -> Tensor:
        return place.copy_(y)[:]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return dy.clone(), None


def _into(memory: dict[str, Tensor], y: Tensor) -> Tensor:
    return memory.setdefault("of all", torch.empty_like(y)).copy_(y)[:]


def reuses_its_output(module: Any, x: Tensor, ids: Tensor) -> Tensor:
    return _IntoBuffers.apply(x + module.weight[ids], module.memory, "output")


def reuses_a_gradient(module: Any, x: Tensor, ids: Tensor) -> Tensor:
    return _IntoBuffers.apply(x, module.memory, "gradient") + module.weight[ids]


HABITS = [
    (changes_integers, "input-overwritten", "ids"),
    (changes_data, "input-overwritten", "x"),
    (changes_upstream, "input-overwritten", "d output"),
    (reuses_its_output, "stale-buffer", "output"),
    (reuses_a_gradient, "stale-buffer", "x"),
]


def test_a_right_one_has_none(gloo: Engine) -> None:
    assert Runner(check(right), gloo).run(CASE).verdict is Verdict.PASS


@pytest.mark.parametrize(("how", "code", "tensor"), HABITS)
def test_each_is_told(gloo: Engine, how: Any, code: str, tensor: str) -> None:
    runner = Runner(check(how), gloo)
    result = runner.run(CASE)
    assert {(m.kind, m.name.base) for m in result.mismatches} == {("discipline", tensor)}
    assert examine_failure(runner, result).diagnosis.code == code


@pytest.mark.parametrize(("how", "code", "tensor"), HABITS)
def test_what_is_declared_may_change(gloo: Engine, how: Any, code: str, tensor: str) -> None:
    assert Runner(check(how, tensor), gloo).run(CASE).verdict is Verdict.PASS


def test_what_is_declared_may_be_changed_in_place(gloo: Engine) -> None:
    def in_place(module: Any, x: Tensor, ids: Tensor) -> Tensor:
        return x.mul_(1.0).add_(module.weight[ids])  # type: ignore[no-any-return]

    refused = Runner(check(in_place), gloo).run(CASE)
    assert {m.kind for m in refused.mismatches} == {"exception"}, "a leaf may not be changed"
    assert Runner(check(in_place, "x"), gloo).run(CASE).verdict is Verdict.PASS


def test_calls_may_take_turns_in_one_memory(gloo: Engine) -> None:
    def ring(module: Any, x: Tensor, ids: Tensor) -> Tensor:
        memory = module.memory.setdefault("ring", torch.empty(2, *x.shape, dtype=x.dtype))
        module.memory["turn"] = 1 - module.memory.get("turn", 1)
        return _IntoPlace.apply(x + module.weight[ids], memory[module.memory["turn"]])

    assert Runner(check(ring), gloo).run(CASE).verdict is Verdict.PASS


def test_what_a_collective_has_yet_to_fill_is_waited_for(gloo: Engine) -> None:
    """Results of functional collectives are tensors without memory of their own."""

    def reduced(module: Any, x: Tensor, ids: Tensor) -> Tensor:
        return all_reduce((x + module.weight[ids]) / 2, "sum", dist.group.WORLD)

    assert Runner(check(reduced), gloo).run(CASE).verdict is Verdict.PASS


def test_what_is_the_modules_own_may_change_with_it(gloo: Engine) -> None:
    def with_its_weight(module: Any, x: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        return x + module.weight[ids], module.weight

    own = check(with_its_weight)
    spec = replace(own.spec, reference=lambda case: Table(with_its_weight))
    assert Runner(replace(own, spec=spec), gloo).run(CASE).verdict is Verdict.PASS


def test_what_is_declared_must_be_there(gloo: Engine) -> None:
    with pytest.raises(InvalidArgument, match=r"overwrites= names 'y': give names of x, ids"):
        Runner(check(right, "y"), gloo).run(CASE)


def frees_its_input(module: Any, x: Tensor, ids: Tensor) -> Tensor:
    y = module.weight[ids] + x
    x.untyped_storage().resize_(0)
    return y  # type: ignore[no-any-return]


def puts_another_in_place(module: Any, x: Tensor, ids: Tensor) -> Tensor:
    y = x + module.weight[ids]
    x.data = torch.zeros_like(x)
    return y  # type: ignore[no-any-return]


def sets_other_indices(module: Any, x: Tensor, ids: Tensor) -> Tensor:
    y = x + module.weight[ids.clone()]
    ids.set_(torch.zeros_like(ids))  # type: ignore[no-untyped-call]
    return y  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("how", "tensor"),
    [(frees_its_input, "x"), (puts_another_in_place, "x"), (sets_other_indices, "ids")],
)
def test_whatever_becomes_of_the_memory_is_told(gloo: Engine, how: Any, tensor: str) -> None:
    (first, *_) = Runner(check(how), gloo).run(CASE).mismatches
    assert (first.kind, first.name.base) == ("discipline", tensor)
    assert first.detail.elements  # type: ignore[union-attr]
    assert Runner(check(how, tensor), gloo).run(CASE).verdict is Verdict.PASS


class Positions(nn.Module):
    """x [H] → 2 (x + weight), by views, so that both gradients are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return 2 * (x.unsqueeze(0) + self.weight.unsqueeze(0))


class Hooked(Positions):
    """What is left in a gradient by a hook may be the upstream gradient's memory."""

    def __init__(self) -> None:
        super().__init__()

        def add(weight: Tensor) -> None:
            assert weight.grad is not None
            weight.grad += 1.0

        self.weight.register_post_accumulate_grad_hook(add)

    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(0) + self.weight.unsqueeze(0)


@pytest.mark.parametrize("cls", [Positions, Hooked])
def test_gradients_that_autograd_puts_into_one_memory_are_no_fault(gloo: Engine, cls: Any) -> None:
    spec = Spec(
        name="positions",
        cases=[CASE],
        reference=lambda case: cls(),
        inputs=lambda case, draw: {"x": draw("x", 4)},
        layout=lambda case: Layout(params={"weight": Replicate()}),
    )
    assert Runner(Check(spec, lambda case, mesh: cls()), gloo).run(CASE).verdict is Verdict.PASS


@pytest.mark.parametrize("kind", ["sparse", "meta", "counter"])
def test_what_the_reference_does_not_have_is_left_alone(gloo: Engine, kind: str) -> None:
    def extra(module: Any, x: Tensor, ids: Tensor) -> dict[str, Tensor]:
        counter = module.memory.setdefault("calls", torch.zeros(1))
        others = {"sparse": x.detach().to_sparse(), "meta": x.to("meta"), "counter": counter}
        counter += 1
        return {"output": x + module.weight[ids], "aux": others[kind]}

    assert Runner(check(extra), gloo).run(CASE).verdict is Verdict.PASS
