"""Plans of torch's `parallelize_module`, at sizes that the degree does not divide, too."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
)

import tpcheck
from fixtures.frameworks.torch_findings import finding, singleton, wide
from properties.training import adamw
from tpcheck import Case, Layout, Norm, Plan, Training
from tpcheck.adapters import dtensor


class _MLP(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(case["hidden"])
        self.up = torch.nn.Linear(case["hidden"], case["inner"], bias=case["bias"])
        self.down = torch.nn.Linear(case["inner"], case["hidden"], bias=case["bias"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.silu(self.up(self.norm(x))))


def _cases(space: Any, *, inner: Any, seq: Any) -> Any:
    from hypothesis import strategies as st

    from tpcheck import strategies

    dims = {"batch": st.integers(1, 3), "seq": seq(), "hidden": strategies.sizes(4, 9)}
    return strategies.cases(space, {**dims, "inner": inner(), "bias": st.booleans()})


def _any() -> Any:
    from tpcheck import strategies

    return strategies.sizes(4, 13)


def _even() -> Any:
    from tpcheck import strategies

    return strategies.multiples("tp")


def _few() -> Any:
    from tpcheck import strategies

    return strategies.sizes(1, 5)


def _x(case: Case, draw: Any) -> dict[str, torch.Tensor]:
    return {"x": draw("x", case["batch"], case["seq"], case["hidden"])}


def _whole(case: Case) -> tuple[str, ...]:
    return ("norm.*", "down.bias") if case["bias"] else ("norm.*",)


def _plan(case: Case) -> Plan:
    return Plan({"up": ColwiseParallel(), "down": RowwiseParallel()}, whole=_whole(case))


def _plan_kept_global(case: Case) -> Plan:
    kept = ColwiseParallel(use_local_output=False)  # a DTensor knows its size at any cut
    return Plan({"up": kept, "down": RowwiseParallel()}, whole=_whole(case))


def _plan_sp(case: Case) -> Plan:
    return Plan(
        {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
        },
        whole=_whole(case),
    )


dtensor_mlp = dtensor.check(
    _MLP,
    _plan,
    cases=lambda space: _cases(space, inner=_any, seq=_few),
    inputs=_x,
    known=[
        finding(
            code="wrong-placement",
            case=Case(dims={"batch": 1, "seq": 1, "hidden": 4, "inner": 5, "bias": False}),
            when=lambda case: case["inner"] % case.tp != 0,
            page="docs/findings/torch-uneven-colwise-rowwise.md",
        ),
    ],
)
dtensor_mlp_uneven = dtensor.check(
    _MLP,
    _plan_kept_global,
    cases=lambda space: _cases(space, inner=_any, seq=_few),
    inputs=_x,
    known=[
        finding(
            code="rank-crash",
            case=Case(
                dims={"batch": 1, "seq": 1, "hidden": 4, "inner": 1, "bias": False}, step=True
            ),
            when=lambda case: case.step and case["inner"] < case.tp,
            page="docs/findings/torch-fewer-rows-than-ranks.md",
        ),
    ],
)
dtensor_mlp_sp = dtensor.check(
    _MLP,
    _plan_sp,
    cases=lambda space: _cases(space, inner=lambda: wide(3), seq=_even),
    inputs=_x,
    layout=lambda case: Layout(
        inputs={"x": tpcheck.Shard(1)}, outputs={"output": tpcheck.Shard(1)}
    ),
    known=[singleton({"hidden": 4, "inner": 1, "bias": False})],
)

_even_sp = dtensor.check(
    _MLP,
    _plan_sp,
    cases=lambda space: _cases(space, inner=_even, seq=_even),
    inputs=_x,
    layout=lambda case: Layout(
        inputs={"x": tpcheck.Shard(1)}, outputs={"output": tpcheck.Shard(1)}
    ),
)


def _save(module: torch.nn.Module, folder: Path) -> None:
    dcp.save(module.state_dict(), checkpoint_id=folder)


def _load(module: torch.nn.Module, folder: Path) -> None:
    state = module.state_dict()
    dcp.load(state, checkpoint_id=folder)
    module.load_state_dict(state)


dtensor_mlp_saved = replace(_even_sp, save=_save, load=_load, processes=True)


def _save_training(module: torch.nn.Module, optimizer: Any, folder: Path) -> None:
    model, state = get_state_dict(module, optimizer)
    dcp.save({"model": model, "optimizer": state}, checkpoint_id=folder)


def _load_training(module: torch.nn.Module, optimizer: Any, folder: Path) -> None:
    model, state = get_state_dict(module, optimizer)
    dcp.load({"model": model, "optimizer": state}, checkpoint_id=folder)
    set_state_dict(module, optimizer, model_state_dict=model, optim_state_dict=state)


# torch's checkpoint with its optimizer: its parts may be of another degree, state and all
dtensor_mlp_resumed = replace(
    _even_sp,
    spec=replace(_even_sp.spec, training=Training(adamw, steps=2)),
    save=_save_training,
    load=_load_training,
    resumes=True,
    processes=True,
)
# clipped by torch's own function, which knows DTensors
dtensor_mlp_norm = replace(_even_sp, spec=replace(_even_sp.spec, norm=Norm()))


def _vocab_cases(space: Any) -> Any:
    from hypothesis import strategies as st

    from tpcheck import strategies

    return strategies.cases(
        space,
        {
            "batch": st.integers(1, 3),
            "seq": _few(),
            "vocab": strategies.sizes(4, 17),
            "hidden": strategies.sizes(1, 6),
        },
    )


class _Lookup(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(case["vocab"], case["hidden"])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.rows(ids)


dtensor_embedding = dtensor.check(
    _Lookup,
    {"rows": RowwiseParallel(input_layouts=Replicate())},
    cases=_vocab_cases,
    inputs=lambda case, draw: {
        "ids": draw.integers("ids", 0, case["vocab"], case["batch"], case["seq"])
    },
    known=[
        finding(
            code="rank-crash",
            case=Case(dims={"batch": 1, "seq": 1, "vocab": 9, "hidden": 1}, mesh={"tp": 4}),
            when=lambda case: (case.tp - 1) * -(-case["vocab"] // case.tp) >= case["vocab"],
            page="docs/findings/transformers-empty-vocabulary-shard.md",
        )
    ],
)
