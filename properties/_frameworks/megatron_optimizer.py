"""Megatron-core's distributed optimizer: three steps of its own MLP, with and without data
parallelism."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from fixtures.frameworks import megatron_modules as modules
from fixtures.frameworks.megatron_optimizer import RATE, Distributed
from fixtures.parallel.zero import data_parallel
from tpcheck import Check, Spec, Training
from tpcheck.adapters import megatron


def _adam(named: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(list(named.values()), lr=RATE, weight_decay=0.0)


def _finalize(module: Any, mesh: Any) -> None:
    megatron.finalize(module, mesh)  # of what the buffers hold
    module.gradients_of_buffers()


def _trained(spec: Spec) -> Spec:
    """In float32, which Megatron's buffers are of here, and on two data-parallel ranks."""

    def cases(space: Any) -> Any:
        drawn = data_parallel(spec).cases(replace(space, dtypes=("float32",)))  # type: ignore[operator]
        return drawn.filter(lambda case: case.dp == 2)

    return replace(
        data_parallel(spec),
        cases=cases,
        finalize=_finalize,
        training=Training(_adam, steps=3),
        modes=(),
    )


megatron_mlp_distributed_optimizer = Check(
    _trained(modules.mlp_spec(False)),
    megatron.candidate(modules.mlp),
    optimizer=Distributed,
    processes=True,
)
megatron_mlp_sp_distributed_optimizer = Check(
    _trained(modules.mlp_spec(True)),
    megatron.candidate(partial(modules.mlp, sp=True)),
    optimizer=Distributed,
    processes=True,
)
