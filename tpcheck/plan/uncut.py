"""What is sharded along tp in a model that no check has built: its meshes have names of their own,
and a tensor that was sharded by hand does not say so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tpcheck.errors import InvalidArgument, shown
from tpcheck.plan.built import flattened, units
from tpcheck.tensors.live import layers
from tpcheck.tensors.meshes import Axes, named
from tpcheck.tensors.names import unwrapped

#: Names, or parts of one as of `dp_shard_cp`, that say that an axis is another than tp.
OTHERS = frozenset({"dp", "fsdp", "cp", "ep", "pp"})


def axes_by_name(model: nn.Module) -> Axes:
    """Of the meshes of a model's DTensors, what their axes are: by their names where one of them is
    "tp". Where none is, each axis is taken for it that FSDP2 does not shard along, and whose name
    does not say that it is another."""
    parts = (part for parameter in model.parameters() for part in layers(parameter))
    meshes = [mesh for part in parts if (mesh := getattr(part, "device_mesh", None)) is not None]
    if any("tp" in named(mesh) for mesh in meshes):
        return named
    of_fsdp = [mesh for unit in units(model) for mesh in unit.meshes]
    others = {name for mesh in of_fsdp for name in named(mesh)}

    def axes(mesh: Any) -> list[str]:
        if not (names := named(mesh)):
            return [] if mesh in of_fsdp else ["tp"] * mesh.ndim
        return [
            name if name in others or OTHERS.intersection(name.split("_")) else "tp"
            for name in names
        ]

    return axes


def told(
    model: nn.Module, cut: Mapping[str, Collection[str]], full: Mapping[str, Tensor]
) -> dict[str, Collection[str]]:
    """Of what is meant to be sharded what is known not to be so by hand: along tp the parameters
    that still have their whole shape.

    Raises:
        InvalidArgument: `full` is not a mapping to tensors.
    """
    if not (isinstance(full, Mapping) and all(isinstance(t, Tensor) for t in full.values())):
        raise InvalidArgument(
            f"full={shown(full)}: give parameter → whole tensor, as the unsharded model's "
            "state_dict() does"
        )
    own = _shapes(model)
    whole = {name for name, tensor in full.items() if own.get(name) == tensor.shape}
    return {
        name: axes if name in whole else [axis for axis in axes if axis != "tp"]
        for name, axes in cut.items()
    }


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    """Parameter → its shape, that of a DTensor as a whole; where FSDP1 has it, as that took it."""
    taken = flattened(model)
    return {
        unwrapped(f"{path}.{name}" if path else name, model): taken.get(
            (id(module), name), parameter.shape
        )
        for path, module in model.named_modules()
        for name, parameter in module._parameters.items()
        if parameter is not None and not is_lazy(parameter)
    }
