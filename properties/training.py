"""Steps of an optimizer over sharded parameters leave what they leave over whole ones: parameters
and the optimizer's state, step after step."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fixtures.parallel.clipping import Clipping
from fixtures.parallel.optimizing import (
    Lars,
    MainParameters,
    ParallelAdafactor,
    ParallelLars,
)
from fixtures.parallel.scaling import ScaledMainParameters, scaled
from fixtures.parallel.zero import ShardedState, data_parallel, torchs
from properties import mlp
from tpcheck import Check, Norm, Scaling, Training

SCALING = Scaling(initial=2.0**4, interval=1)


def adamw(named: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    """Weights decay, biases and scales don't."""
    decayed = [p for name, p in named.items() if p.ndim > 1]
    others = [p for name, p in named.items() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.01)


def plain_adamw(named: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW([{"params": list(named.values())}], lr=0.01, weight_decay=0.0)


def momentum(named: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(named.values(), lr=0.05, momentum=0.9, nesterov=True)


def adafactor(named: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adafactor(named.values(), lr=0.05)


def halved(optimizer: Any) -> Any:
    """The rate falls by half in each step."""
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


def trained(check: Check, training: Training, norm: Norm | None = None) -> Check:
    """The same check with steps of an optimizer, and clipping by the norm where one is given."""
    spec = replace(check.spec, training=training, norm=norm, budget=None)
    clip = None if norm is None else Clipping(norm.order)
    return replace(check, spec=spec, clip=clip, communication=False)


mlp_adamw = trained(mlp.mlp, Training(adamw, steps=3, schedule=halved))
mlp_sp_norm_adamw = trained(mlp.mlp_sp, Training(adamw, steps=2), Norm())
mlp_sp_momentum = trained(mlp.mlp_sp, Training(momentum, steps=3))
mlp_main_adamw = trained(mlp.mlp, Training(adamw, steps=3, main=torch.float32), Norm())
mlp_sp_main_momentum = replace(
    trained(mlp.mlp_sp, Training(momentum, steps=3, main=torch.float32)),
    optimizer=lambda module, mesh: MainParameters(module, momentum),
)
mlp_scaled_adamw = trained(mlp.mlp, Training(adamw, steps=4, scaling=Scaling()), Norm())
mlp_sp_main_scaled = replace(
    trained(mlp.mlp_sp, Training(adamw, steps=4, main=torch.float32, scaling=SCALING)),
    optimizer=scaled(ScaledMainParameters, adamw, SCALING),
)
mlp_lars = replace(trained(mlp.mlp, Training(Lars, steps=3)), optimizer=ParallelLars)
mlp_adafactor = replace(
    trained(mlp.mlp_sp, Training(adafactor, steps=3)),
    optimizer=lambda module, mesh: ParallelAdafactor(module, mesh, lr=0.05),
)
mlp_sp_zero = replace(
    trained(replace(mlp.mlp_sp, spec=data_parallel(mlp.mlp_sp.spec)), Training(adamw, steps=3)),
    optimizer=lambda module, mesh: ShardedState(module, mesh, adamw),
)
mlp_zero_of_torch = replace(
    trained(replace(mlp.mlp, spec=data_parallel(mlp.mlp.spec)), Training(plain_adamw)),
    optimizer=torchs,
)
