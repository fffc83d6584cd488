"""A failure that is in no module's forward or backward is not said to be in one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from fixtures.parallel.linear import ColumnLinear
from fixtures.parallel.mlp import MLP
from fixtures.parallel.sharding import empty_parameter, load_full
from tests.ranks.diagnosis.test_examine import examined
from tpcheck import Case, Check, Norm, Training, specs
from tpcheck.engines.engine import Engine

CASE = Case(
    dims={
        "batch": 1, "seq": 4, "hidden": 4, "intermediate": 4, "activation": "gelu",
        "norm": "layer", "bias": True, "residual": True,
    },
)  # fmt: skip


def candidate(case: Case, mesh: Any) -> nn.Module:
    sizes = case["hidden"], case["intermediate"]
    named = {name: case[name] for name in ("activation", "norm", "bias", "residual")}
    return MLP(*sizes, **named, group=mesh["tp"].get_group())


def seen(engine: Engine, case: Case = CASE, **parts: Any) -> str | None:
    spec, own = specs.mlp(), {}
    for name, part in parts.items():
        if name in ("finalize", "norm", "training"):
            spec = replace(spec, **{name: part})
        else:
            own[name] = part
    check = Check(spec, own.pop("candidate", candidate), name="mlp", **own)
    return examined(check, case, engine).first_divergence


def rows_reversed(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    load_full(module, {**state, "down.weight": state["down.weight"].flip(0)})


def test_what_a_loader_left(gloo: Engine) -> None:
    found = seen(gloo, load=rows_reversed)
    assert found == "down.weight as load left it, before the first forward"


class Whole(ColumnLinear):
    """Each rank has all of the weight, and multiplies by its part."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        columns, rows = self.weight.shape
        self.weight = empty_parameter(columns * self.degree, rows)

    def used_weight(self) -> Tensor:
        return super().local_part("weight", self.weight)


def whole(case: Case, mesh: Any) -> nn.Module:
    module = candidate(case, mesh)
    sizes, group = (case["hidden"], case["intermediate"]), mesh["tp"].get_group()
    module.up = Whole(*sizes, group=group, bias=case["bias"])
    return module


def test_how_a_parameter_is_held(gloo: Engine) -> None:
    found = seen(gloo, candidate=whole)
    assert found == "up.weight as the candidate holds it, before the first forward"


def bent(case: Case, mesh: Any) -> nn.Module:
    """Its second product is wrong."""
    module = candidate(case, mesh)
    module.down.register_forward_hook(lambda *given: 1.25 * given[-1])
    return module


def test_the_twin_of_a_loader_that_is_right_the_module_is_named(gloo: Engine) -> None:
    found = seen(gloo, load=load_full, candidate=bent)
    assert found == "down (forward); everything upstream agrees"


def doubled(module: nn.Module, mesh: Any) -> None:
    for parameter in module.parameters():
        assert parameter.grad is not None
        parameter.grad.mul_(2)


def own_term(case: Case, mesh: Any) -> nn.Module:
    """After backward each rank has its term of the gradient of a bias."""
    module = candidate(case, mesh)
    group = mesh["tp"].get_group()
    module.down.bias.register_hook(lambda grad: (group.rank() + 1.0) / 3.0 * grad)
    return module


def averaged(module: nn.Module, mesh: Any) -> None:
    grad = module.get_parameter("down.bias").grad
    dist.all_reduce(grad, group=mesh["tp"].get_group())
    grad.div_(2)  # type: ignore[union-attr]


def summed(module: nn.Module, mesh: Any) -> None:
    dist.all_reduce(module.get_parameter("down.bias").grad, group=mesh["tp"].get_group())


def nothing(module: nn.Module, mesh: Any) -> None: ...


def wrong_before(case: Case, mesh: Any) -> nn.Module:
    module = candidate(case, mesh)
    module.down.bias.register_hook(lambda grad: grad.flip(-1))
    return module


SUM = "down.bias after finalize; what backward left on the ranks adds up to what is right"


@pytest.mark.parametrize(
    ("build", "finalize", "words"),
    [
        (candidate, doubled, "after finalize; what backward left is right"),
        (own_term, averaged, SUM),
        (own_term, nothing, "what the ranks have adds up to what is right, and finalize leaves"),
        (wrong_before, summed, "down.bias after backward and finalize, which changes it"),
        (wrong_before, nothing, "down (backward)"),
    ],
    ids=["right before", "terms", "terms that are left", "wrong before", "backward's own"],
)
def test_what_finalize_makes_of_what_backward_left(
    gloo: Engine, build: Any, finalize: Any, words: str
) -> None:
    assert words in str(seen(gloo, candidate=build, finalize=finalize))


def of_own_part(module: nn.Module, mesh: Any, most: float) -> Tensor:
    """Each rank clips by the norm of what it has."""
    return nn.utils.clip_grad_norm_(module.parameters(), most)


def test_clipping(gloo: Engine) -> None:
    found = seen(gloo, norm=Norm(), clip=of_own_part)
    assert found == "norm (clipping); every gradient agrees"


TRAINING = Training(optimizer=lambda params: torch.optim.SGD(params.values(), lr=0.1), steps=2)


def too_fast(module: nn.Module, mesh: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.2)


class Keeps(torch.optim.SGD):
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing: what is there stays."""


def keeps(module: nn.Module, mesh: Any) -> torch.optim.Optimizer:
    return Keeps(module.parameters(), lr=0.1)


def test_a_step(gloo: Engine) -> None:
    found = str(seen(gloo, training=TRAINING, optimizer=too_fast))
    assert found.endswith(" (after the step); every gradient agrees")


def test_a_gradient_that_is_not_zeroed(gloo: Engine) -> None:
    found = str(seen(gloo, training=TRAINING, optimizer=keeps))
    assert "@step2 before its backward: the gradient of the step before is still" in found
