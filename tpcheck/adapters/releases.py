"""What a release of transformers offers to shard a model in memory, by what it has, not by its
number: releases since 5.16 make DTensors of a model's parameters, older ones do not."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Mapping
from typing import Any

from torch.distributed.device_mesh import DeviceMesh

from tpcheck.errors import InvalidArgument

#: The first and the last release on which the adapters were measured; docs/adapters.md has both.
FIRST, LAST = "5.16", "5.24"
#: What a model class is asked to shard itself by, and how releases call the mesh that it takes.
SHARDS = "maybe_distribute_model"
_A_MESH, _MESHES = "device_mesh", "mesh_manager"


def why_not() -> str | None:
    """Why models of the installed transformers can't be checked under their plans, or None."""
    if importlib.util.find_spec("transformers") is None:
        return "needs the package transformers, which is not installed"
    if importlib.util.find_spec("transformers.distributed.tensor_parallel") is None:
        return _outside("has no transformers.distributed.tensor_parallel, which shards by DTensors")
    from transformers import PreTrainedModel

    shards = getattr(PreTrainedModel, SHARDS, None)
    last = list(inspect.signature(shards).parameters)[-1] if shards is not None else None
    if last not in (_A_MESH, _MESHES):
        return _outside(f"has no PreTrainedModel.{SHARDS} that takes a mesh")
    return None


def _outside(lacks: str) -> str:
    version = importlib.import_module("transformers").__version__
    return f"transformers {version} {lacks}: {FIRST} to {LAST} are supported"


class _Meshes:
    """The mesh of TP by all the names under which releases since 5.19 ask for one."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh

    def get_mesh(self, dims: Any) -> DeviceMesh:
        return self.mesh


def distribute(model: Any, mesh: DeviceMesh, plan: Mapping[str, str] | None = None) -> Any:
    """Shards a model in place, by the function that `from_pretrained` calls.

    Args:
        mesh: the 1-D mesh of TP.
        plan: rules in place of the model's own for the same names; None: none.

    Raises:
        InvalidArgument: the release is outside the supported range.
    """
    if (reason := why_not()) is not None:
        raise InvalidArgument(reason)
    from transformers.distributed import DistributedConfig

    shards = getattr(type(model), SHARDS)
    of_meshes = list(inspect.signature(shards).parameters)[-1] == _MESHES
    whole = {**model.tp_plan, **plan} if plan else "auto"
    # until 5.18 the rules given are all that there are
    config = DistributedConfig(tp_plan=whole, tp_size=mesh.size())
    model = shards(model, config, _Meshes(mesh) if of_meshes else mesh)
    model._tp_size = mesh.size()
    return model
