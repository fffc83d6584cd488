"""A world of one rank in this process: for code that needs process groups, and has no peers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

#: Names of groups are numbers from here, to which no other world of this process gets: C++ knows
#: groups by their names.
FIRST_GROUP = 10**6


@dataclass
class _World:
    """What c10d knows of process groups, by the names that it has for it."""

    default_pg: Any = None
    pg_map: dict[Any, Any] = field(default_factory=dict)
    pg_names: dict[Any, Any] = field(default_factory=dict)
    pg_group_ranks: dict[Any, Any] = field(default_factory=dict)
    pg_backend_config: dict[Any, Any] = field(default_factory=dict)
    group_count: int = FIRST_GROUP
    tags_to_pg: dict[str, Any] = field(default_factory=dict)
    pg_to_tag: dict[Any, str] = field(default_factory=dict)
    pg_coalesce_state: dict[Any, Any] = field(default_factory=dict)
    comms: list[Any] = field(default_factory=list)


@dataclass
class _Kept:
    """The world of one rank and its meshes, once something has entered it."""

    world: _World | None = None
    meshes: dict[tuple[str, ...], DeviceMesh] = field(default_factory=dict)
    groups: set[Any] = field(default_factory=set)  # without which it is of no use
    started: int = 0  # how many there were

    def whole(self) -> bool:
        """Whether nothing of it was destroyed by what ran in it."""
        return self.world is not None and self.groups <= self.world.pg_map.keys()


_kept = _Kept()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A world of one rank in place of the process's own, which is not touched. It is the same one
    each time: groups that were made in one block serve in the next. Blocks may be nested."""
    own: Any = c10d._world
    if own is _kept.world:
        yield
        return
    world = _kept.world
    if world is None or not _kept.whole():
        # names that no group has had
        world = _World(group_count=FIRST_GROUP * (_kept.started + 1))
        _kept.world = None
    c10d._world = world  # type: ignore[assignment]
    try:
        if _kept.world is None:
            _start()
            _kept.started += 1
            _kept.world, _kept.groups = world, {world.default_pg}
            _kept.meshes.clear()
        _register(world)
        yield
    finally:
        c10d._world = own


def mesh_of_one(axes: Sequence[str]) -> DeviceMesh:
    """The mesh of one rank with these axes; inside `alone()`."""
    key = tuple(axes)
    if key not in _kept.meshes:
        mesh = _kept.meshes[key] = init_device_mesh("cpu", (1,) * len(key), mesh_dim_names=key)
        _kept.groups |= {mesh.get_group(axis) for axis in key}
    return _kept.meshes[key]


def _register(world: _World) -> None:
    """Has C++ know the groups: where the process gives up a default group, it forgets all."""
    for group, name in world.pg_names.items():
        try:
            torch._C._distributed_c10d._resolve_process_group(name)
        except RuntimeError:
            torch._C._distributed_c10d._register_process_group(name, group)


def _start() -> None:
    hook = sys.excepthook  # c10d puts its own in front of it
    store = torch._C._distributed_c10d.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    sys.excepthook = hook
