"""Integers and bools that a check's own loader is to bring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpcheck import Case, Check, Layout, Replicate, Shard, Spec
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict


class Pruned(nn.Module):
    """x → Σ x·w·kept: a weight of which some elements are left out, and how many calls there were
    in the run that it was saved in."""

    kept: Tensor
    calls: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.register_buffer("kept", torch.ones(size, dtype=torch.bool))
        self.register_buffer("calls", torch.tensor(7))
        self.register_buffer("axes", torch.tensor([0, 1]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight * self.kept


def saved(case: Case) -> nn.Module:
    module = Pruned(8)
    module.kept[::3] = False
    module.calls += 3
    return module


SPEC = Spec(
    cases=lambda space: None,
    reference=saved,
    inputs=lambda case, draw: {"x": draw("x", 3, 8)},
    layout=lambda case: Layout(
        params={"weight": Shard(0), "kept": Shard(0), "calls": Replicate(), "axes": Replicate()},
        inputs={"x": Shard(-1)},
        outputs={"output": Shard(-1)},
    ),
    name="pruned",
)
TWO = Case(dims={}, dtype="float32", mesh={"tp": 2})


def build(case: Any, mesh: Any) -> nn.Module:
    module = Pruned(8 // case.tp)
    module.rank = mesh["tp"].get_local_rank()
    return module


def loader(*forgotten: str, of_rank: int | None = None) -> Any:
    """Takes the rank's rows of all but some; or another rank's of the bools."""

    @torch.no_grad()
    def load(module: nn.Module, state: Mapping[str, Tensor]) -> None:
        for name, here in {
            **dict(module.named_parameters()),
            **dict(module.named_buffers()),
        }.items():
            rank: Any = module.rank if of_rank is None or name != "kept" else of_rank
            full = state.get(name)
            if full is not None and name not in forgotten:
                part = full if full.shape == here.shape else full.chunk(2)[rank]
                here.copy_(part)

    return load


@pytest.mark.parametrize(
    "load",
    [None, loader(), loader("axes")],
    ids=["the harness", "all", "not what it is built with"],
)
def test_what_is_loaded_or_built_right_is_no_fault(gloo: Engine, load: Any) -> None:
    assert Runner(Check(SPEC, build, load=load), gloo).run(TWO).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (loader("kept"), "kept as loaded on rank 0 has integers or bools that are not the"),
        (loader("calls"), "calls as loaded on rank 0 has integers or bools that are not the"),
        (loader(of_rank=0), "kept as loaded on rank 1 holds rank 0's part"),
    ],
)
def test_what_its_loader_forgets_is_seen(gloo: Engine, load: Any, said: str) -> None:
    runner = Runner(Check(SPEC, build, load=load), gloo)
    named = examine_failure(runner, runner.run(TWO)).diagnosis
    assert said in named.message, named
    assert named.code == ("unwritten-memory" if "integers" in said else "shard-order"), named
