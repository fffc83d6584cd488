"""transformers models under their own `tp_plan`, on ranks that already run."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from tpcheck.errors import InvalidArgument


def apply_tp_plan(model: Any, mesh: DeviceMesh) -> Any:
    """Shards a transformers model in place by the plan it ships, as `from_pretrained` would.

    Works on the model in memory and on the mesh given (`from_pretrained` always builds a mesh
    over the whole world). Parameters become DTensors over `mesh`; norms stay replicated.

    Args:
        model: an unsharded model, the same on every rank.
        mesh: the 1-D TP mesh, as `mesh["tp"]`.

    Raises:
        InvalidArgument: the model ships no plan, or its head counts don't divide by the degree.
    """
    from transformers.distributed import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    degree = mesh.size()
    config = model.config
    if not getattr(model, "tp_plan", None):
        raise InvalidArgument(f"{type(model).__name__} ships no tp_plan")
    for what in ("num_attention_heads", "num_key_value_heads"):
        count = getattr(config, what, None)
        if count is not None and count % degree:
            raise InvalidArgument(f"{what}={count} is not divisible by tp={degree}")
    if degree == 1:
        return model
    plan = model._resolve_parallel_plans(DistributedConfig(tp_size=degree))[0]
    model._tp_size, model._device_mesh = degree, mesh
    with torch.random.fork_rng(devices=[]):
        return apply_tensor_parallelism(model, mesh, plan)
