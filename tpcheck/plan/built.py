"""What a built model is made of: FSDP2's units, checkpoint wrappers, Float8 modules.

FSDP keeps what it manages in private state; `units` and `flattened` are the places that read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.tensors.names import Wrapper, unwrapped


@dataclass(frozen=True)
class Managed:
    """One parameter that FSDP2 manages, and the module that it will put it back into."""

    parameter: Tensor
    owner: nn.Module
    name: str


@dataclass(frozen=True)
class Unit:
    """One FSDP2 unit: what `fully_shard` was called on, its parameters, and the meshes that it
    shards and copies them over."""

    name: str
    managed: tuple[Managed, ...]
    meshes: tuple[Any, ...] = ()


def units(model: nn.Module) -> Iterator[Unit]:
    """The FSDP2 units of a model, each once."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        state = getattr(module, "_get_fsdp_state", lambda: None)()
        if state is None or id(state) in seen:
            continue
        seen.add(id(state))
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:  # torch < 2.13: one group per unit
            groups = [g for g in (state._fsdp_param_group,) if g is not None]
        managed = [
            Managed(p.sharded_param, p._module_info.module, p._module_info.param_name)
            for group in groups
            for p in group.fsdp_params
        ]
        meshes = [p.mesh_info.mesh for group in groups for p in group.fsdp_params]
        yield Unit(unwrapped(name, model), tuple(managed), tuple(meshes))


def flattened(model: nn.Module) -> dict[tuple[int, str], torch.Size]:
    """(id of a module, name of its parameter) → the shape in which FSDP1 took it."""
    flat = [getattr(getattr(m, "_handle", None), "flat_param", None) for m in model.modules()]
    return {
        (id(info.module), info.param_name): shape
        for one in flat
        for info, shape in zip(
            getattr(one, "_param_infos", ()), getattr(one, "_shapes", ()), strict=True
        )
    }


def is_unit(module: nn.Module | None) -> bool:
    """Whether FSDP2 or FSDP1 was applied to the module itself."""
    return hasattr(module, "_get_fsdp_state") or Wrapper.FSDP in getattr(module, "_modules", ())


def checkpointed(module: nn.Module) -> nn.Module | None:
    """What a CheckpointWrapper wraps."""
    inner = module._modules.get(Wrapper.CHECKPOINTING)
    return inner if isinstance(inner, nn.Module) else None


def is_float8(module: nn.Module) -> bool:
    return any(cls.__name__ == "Float8Linear" for cls in type(module).__mro__)
