"""Norms of gradients that dp coordinates have parts of, beside those of the ranks' own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from tests.ranks.diagnosis.test_examine import examined
from tpcheck import Case, Check, Layout, Norm, Shard, Spec
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict
from tpcheck.vocabulary import Kind

MESH = {"dp": 2, "tp": 2}
COLUMNS, ROWS, WHOLE = ({**of, "dp": Shard(0)} for of in ({"tp": Shard(0)}, {"tp": Shard(1)}, {}))
CUT = {"up.weight": COLUMNS, "up.bias": COLUMNS, "down.weight": ROWS, "scale": WHOLE}


class Scaled(nn.Module):
    """`scale` is whole along tp, and cut along dp alone."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(torch.relu(self.up(x * self.scale)))
        return y


def build(case: Case, mesh: DeviceMesh) -> nn.Module:
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    module = parallelize_module(Scaled(), mesh["tp"], plan)  # type: ignore[arg-type]
    return fully_shard(module, mesh=mesh["dp"])


SPEC = Spec(
    "scaled",
    lambda space: None,
    lambda case: Scaled(),
    lambda case, draw: {"x": draw("x", 3, 4)},
    lambda case: Layout(params=CUT),
    dp_gradients="mean",
    norm=Norm(most=(4.0,)),  # more than it is: nothing is clipped
)


@dataclass(frozen=True)
class Clipped:
    """Each element once over all ranks.

    Args:
        over: the axes along which ranks' parts are added up.
        by: what the norm is multiplied with.
        copies: whether `scale` counts on each rank of tp.
    """

    over: tuple[str, ...] = ("dp", "tp")
    by: float = 1.0
    copies: bool = False

    def __call__(self, module: nn.Module, mesh: DeviceMesh, most: float) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for name, parameter in module.named_parameters():
            own: Any = parameter.grad
            assert isinstance(own, DTensor)
            whole = name == "scale" and "tp" in self.over and not self.copies
            total += own.to_local().double().square().sum() / (2 if whole else 1)
        for axis in self.over:
            dist.all_reduce(total, group=mesh[axis].get_group())
        return total.sqrt() * self.by


@pytest.mark.parametrize(("dtype", "least"), [("float32", 1e-5), ("bfloat16", 0.02)])
def test_what_the_norm_of_the_reference_hides_is_outside_of_their_own(
    gloo: Engine, dtype: str, least: float
) -> None:
    case = Case(mesh=MESH, dtype=dtype)
    right = Runner(Check(SPEC, build, clip=Clipped()), gloo).run(case)
    assert right.verdict is Verdict.PASS, right.mismatches
    wrong = Runner(Check(SPEC, build, clip=Clipped(by=1 + least)), gloo).run(case)
    assert {m.kind for m in wrong.mismatches} == {Kind.GRAD_NORM}
    assert {m.rank for m in wrong.mismatches} == set(range(case.world_size))
    assert not wrong.looked_again  # it is evidence by itself


#: In each run: which way, in which dtype.
SEEN = {(0, "float64"), (1, "bfloat16"), (3, "float64"), (6, "float64")}

WRONG = [
    (Clipped(over=("tp",)), "the gradients summed over the ranks along tp alone"),
    (Clipped(over=("dp",)), "the gradients summed over the ranks along dp alone"),
    (Clipped(over=()), "each rank counts its own part of the gradients alone"),
    (Clipped(copies=True), "the gradients counted once for each rank that has a copy"),
    (Clipped(over=("dp", "tp", "dp")), "the gradients summed over the ranks along dp once more"),
    (Clipped(over=("tp",), copies=True), "the gradients summed over the ranks along tp alone"),
    (Clipped(over=("dp", "tp", "tp")), "the gradients summed over the ranks along tp once more"),
]


@pytest.mark.parametrize(
    ("clip", "said", "dtype"),
    [
        pytest.param(*way, dtype, marks=() if (i, dtype) in SEEN else pytest.mark.sweep)
        for i, way in enumerate(WRONG)
        for dtype in ("float64", "bfloat16")
    ],
)
def test_a_wrong_way_to_count_is_named(gloo: Engine, clip: Clipped, said: str, dtype: str) -> None:
    found = examined(Check(SPEC, build, clip=clip), Case(mesh=MESH, dtype=dtype), gloo)
    assert {m.tensor for m in found.mismatches} == {"norm"}
    assert found.diagnosis.message.endswith(said), found.diagnosis.message
