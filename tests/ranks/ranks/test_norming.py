"""The norm that a candidate says, beside that of its own gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from fixtures.parallel.clipping import Clipping
from properties.grad_norm import mlp_norm
from tests.ranks.diagnosis.test_examine import examined
from tpcheck import Check, Layout, Norm, Replicate, Shard, Spec
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict
from tpcheck.vocabulary import Kind

DIMS = {"batch": 2, "seq": 4, "hidden": 16, "intermediate": 32, "activation": "swiglu"}
CASE = Case(dims=DIMS | {"norm": "rms", "residual": True, "bias": True}, mesh={"tp": 2}, seed=1)


@dataclass(frozen=True)
class Off(Clipping):
    """The norm is times a number near 1; gradients are clipped by the right one."""

    by: float = 1.0

    def __call__(self, module: Any, mesh: Any, most: float) -> Tensor:
        return super().__call__(module, mesh, most) * self.by


@pytest.mark.parametrize("mesh", [{"tp": 2}, {"dp": 2, "tp": 2}])
@pytest.mark.parametrize(("dtype", "least"), [("float32", 1e-5), ("bfloat16", 0.02)])
def test_what_the_norms_of_the_reference_hide_is_outside_of_its_own(
    threads: Engine, dtype: str, least: float, mesh: dict[str, int]
) -> None:
    case = replace(CASE, dtype=dtype, mesh=mesh)
    right = Runner(replace(mlp_norm, clip=Off(2.0)), threads).run(case)
    assert right.verdict is Verdict.PASS, right.mismatches
    wrong = Runner(replace(mlp_norm, clip=Off(2.0, 1 + least)), threads).run(case)
    assert {m.kind for m in wrong.mismatches} == {Kind.GRAD_NORM}
    assert {m.rank for m in wrong.mismatches} == set(range(case.world_size))
    assert not wrong.looked_again  # it is evidence by itself


@pytest.mark.parametrize("by", [1.3, 0.9])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_norm_that_no_way_to_count_gives_has_no_name(gloo: Engine, dtype: str, by: float) -> None:
    """All parameters are whole on each rank: no rank's own part stands for all."""

    def clip(module: Any, mesh: Any, most: float) -> Tensor:
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), most)
        return norm * (by if mesh["tp"].size() > 1 else 1)

    whole = {"x": Shard(1)}, {"output": Shard(1)}
    spec = Spec(
        "whole",
        lambda space: None,
        lambda case: nn.Linear(3, 2),
        lambda case, draw: {"x": draw("x", 2, 4, 3)},
        lambda case: Layout(params={"*": Replicate()}, inputs=whole[0], outputs=whole[1]),
        finalize=summed,
        norm=Norm(),
    )
    check = Check(spec, lambda case, mesh: nn.Linear(3, 2), clip=clip)
    found = examined(check, Case(mesh={"tp": 2}, dtype=dtype), gloo)
    assert {m.kind for m in found.mismatches} == {Kind.GRAD_NORM}
    assert found.diagnosis.code == "unclassified", found.diagnosis.message


def summed(module: nn.Module, mesh: Any) -> None:
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad, group=mesh["tp"].get_group())


class Alone(Clipping):
    """Replicas count by their shares, and no rank hears of the others' parts."""

    def axes(self) -> tuple[str, ...]:
        return ()


def test_shares_that_are_not_added_up_are_each_ranks_own(gloo: Engine) -> None:
    case = replace(CASE, dtype="float64")
    named = examined(replace(mlp_norm, clip=Alone(2.0)), case, gloo).diagnosis
    assert named.code == "missing-all-reduce"
    assert "each rank counts its own part of the gradients alone" in named.message
