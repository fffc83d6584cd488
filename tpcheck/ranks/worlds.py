"""Process groups for every world size inside warm ranks: the one module that changes c10d's private
state (`comms/operands` reads it, to find the group behind a name).

A case on n ranks must see a default group of exactly n ranks, as under a launcher, although the
warm world is larger. So each rank keeps one default group per size and puts the right one in place
before a case. Groups that a candidate creates are named from a counter that is set from the
case's number, since ranks that sat out a case would otherwise count differently.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tpcheck.process.aspects import Left
from tpcheck.protocol.ends import LOOPBACK, are_shared
from tpcheck.ranks.recorders import record
from tpcheck.ranks.stores import is_launched, store_of
from tpcheck.vocabulary import ON_GPUS

# The driver decides when a case takes too long; c10d's own limit must not come first.
_FOREVER = timedelta(days=1)
_GROUPS_A_CASE = 10_000


class ProcessWorlds:
    """The worlds of one rank process: one `init_process_group`, then a prefix group per size."""

    def __init__(self, engine: str, rank: int, size: int, store_path: str) -> None:
        self.rank, self.size = rank, size
        backend = engine.removesuffix("-cuda")
        self.device = "cuda" if engine in ON_GPUS else "cpu"
        if self.device == "cuda":
            torch.cuda.set_device(rank % torch.cuda.device_count())
            if are_shared():
                os.environ["NCCL_HOSTID"] = f"tpcheck-{rank}"
        store = store_of(store_path, size)
        if not is_launched(store_path):
            os.environ.update(LOOPBACK)  # the candidate may have been imported by now
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_FOREVER)
        # All sizes now, by all ranks together: c10d names a group by how many a rank has made, so
        # ranks that made different ones would wait for each other under different names.
        self._worlds: dict[int, Any] = {size: dist.group.WORLD}
        for smaller in range(1, size):
            self._worlds[smaller] = dist.new_group(list(range(smaller)), timeout=_FOREVER)
        self._meshes: dict[tuple[Any, ...], DeviceMesh] = {}
        self._current = dist.group.WORLD
        self._tables: dict[Any, Any] = {}

    def enter(self, mesh: dict[str, int], epoch: int) -> DeviceMesh:
        """Puts the world of this mesh's size in place; returns the mesh over it."""
        size = math.prod(mesh.values())
        dist.group.WORLD = self._current = self._worlds[size]
        _environment(self.rank, size)
        c10d._world.group_count = epoch * _GROUPS_A_CASE
        key = (*mesh.items(),)
        if key not in self._meshes:
            self._meshes[key] = init_device_mesh(
                self.device, tuple(mesh.values()), mesh_dim_names=tuple(mesh)
            )
        self._tables = _tables([*self._worlds.values(), *_groups_of(self._meshes[key])])
        return _lent(self._meshes[key])

    def left(self) -> list[Left]:
        """What a candidate has left changed of the groups."""
        return _left(self._tables, self._current)


def _groups_of(mesh: DeviceMesh) -> list[Any]:
    return mesh.get_all_groups()


def _lent(mesh: DeviceMesh) -> DeviceMesh:
    """The mesh for one case, over the same groups: what a candidate notes on it goes with it."""
    lent = object.__new__(type(mesh))
    for name, value in vars(mesh).items():
        own = value.clone() if isinstance(value, Tensor) else value
        vars(lent)[name] = dict(value) if isinstance(value, dict) else own
    return lent


def _tables(groups: Iterable[Any]) -> dict[Any, Any]:
    """What c10d has noted of the groups, of those that this rank is a member of."""
    world = c10d._world
    noted = (world.pg_map, world.pg_names, world.pg_backend_config, world.pg_to_tag)
    return {
        group: (*(table.get(group) for table in noted), dict(world.pg_group_ranks.get(group, {})))
        for group in groups
        if isinstance(group, dist.ProcessGroup)
    }


def _left(tables: Mapping[Any, Any], current: Any) -> list[Left]:
    """
    Args:
        tables: what was noted of the groups when the case began.
    """
    if not all(group in c10d._world.pg_map for group in tables):
        return [Left("torch.distributed.destroy_process_group", restored=False)]
    if _tables(tables) != tables or not all(map(_is_found, tables)):
        return [Left("the tables of torch.distributed", restored=False)]
    if c10d._world.pg_coalesce_state:  # collectives are put off until it is left
        return [Left("torch.distributed._coalescing_manager", restored=False)]
    if dist.group.WORLD is not current:  # the next case puts its own in place
        return [Left("torch.distributed.group.WORLD", restored=True)]
    return []


def _is_found(group: Any) -> bool:
    """Whether it is found by its name, as functional collectives do."""
    try:
        return bool(torch._C._distributed_c10d._resolve_process_group(group.group_name) is group)
    except RuntimeError:
        return False


@contextlib.contextmanager
def asked_for_the_world() -> Iterator[list[bool]]:
    """Fills the list where anything asks meanwhile for the default group, which processes of ranks
    have and others do not."""
    asked: list[bool] = []
    held: Any = c10d._World
    found = held.default_pg

    def read(world: Any) -> Any:
        asked.append(True)
        return found.fget(world)

    held.default_pg = property(read, found.fset)
    try:
        yield asked
    finally:
        held.default_pg = found


def _environment(rank: int, size: int) -> None:
    """What a launcher would have set, for candidates that read it."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))


class ThreadWorlds:
    """The worlds of one rank thread, over the threaded process group of torch's test internals.

    `install()` is called once in the process, before any thread makes its worlds.
    """

    _store: Any = None

    @classmethod
    def install(cls) -> None:
        """Replaces c10d's world by a thread-local one and registers the traced group."""
        from torch.testing._internal.distributed import multi_threaded_pg as threaded

        threaded._install_threaded_pg()
        # groups of the same name, one per thread, are told apart by thread
        torch._C._distributed_c10d._set_thread_isolation_mode(True)  # type: ignore[attr-defined]
        cls._store = torch._C._distributed_c10d.HashStore()
        group = _traced_group(threaded.ProcessLocalGroup)

        def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
            c10d._store_based_barrier(rank, store, "", size, timeout)  # type: ignore[arg-type]
            return group(rank, size)

        with contextlib.suppress(RuntimeError):
            dist.Backend.register_backend("tpcheck_threads", create, devices=["cpu"])

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._worlds: dict[int, Any] = {}
        self._group: Any = None
        self._tables: dict[Any, Any] = {}
        self._meshes: dict[tuple[Any, ...], DeviceMesh] = {}

    def enter(self, mesh: dict[str, int], epoch: int) -> DeviceMesh:
        """As `ProcessWorlds.enter`, for this thread."""
        from torch.testing._internal.distributed import multi_threaded_pg as threaded

        torch.autograd.set_multithreading_enabled(False)
        size = math.prod(mesh.values())
        local: Any = threaded.ThreadLocalWorld._world
        if size in self._worlds:
            local.world = self._worlds[size]
        else:
            if hasattr(local, "world"):
                del local.world
            c10d._world.group_count = size * 1000
            dist.init_process_group(
                "cpu:tpcheck_threads",
                store=torch._C._distributed_c10d.PrefixStore(f"world{size}", self._store),
                rank=self.rank,
                world_size=size,
                timeout=_FOREVER,
            )
            self._worlds[size] = local.world
        c10d._world.group_count = (epoch + 1) * _GROUPS_A_CASE
        key = (*mesh.items(),)
        if key not in self._meshes:
            self._meshes[key] = init_device_mesh(
                "cpu", tuple(mesh.values()), mesh_dim_names=tuple(mesh)
            )
        self._group = dist.group.WORLD
        self._tables = _tables([self._group, *_groups_of(self._meshes[key])])
        return _lent(self._meshes[key])

    def left(self) -> list[Left]:
        """As `ProcessWorlds.left`, of this thread's world in place."""
        return _left(self._tables, self._group)


# method of the process group → (name of the op, how many leading arguments are tensors)
_METHODS = {
    "allreduce": ("all_reduce", 1),
    "allreduce_coalesced": ("all_reduce", 1),
    "allgather": ("all_gather", 2),
    "_allgather_base": ("all_gather", 2),
    "all_gather_single": ("all_gather", 2),
    "all_gather_into_tensor_coalesced": ("all_gather", 2),
    "all_gather_single_coalesced": ("all_gather", 2),
    "reduce_scatter": ("reduce_scatter", 2),
    "_reduce_scatter_base": ("reduce_scatter", 2),
    "reduce_scatter_single": ("reduce_scatter", 2),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", 2),
    "reduce_scatter_single_coalesced": ("reduce_scatter", 2),
    "alltoall": ("all_to_all", 2),
    "alltoall_base": ("all_to_all", 2),
    "all_to_all_single": ("all_to_all", 2),
    "broadcast": ("broadcast", 1),
    "gather": ("gather", 2),
    "scatter": ("scatter", 2),
}


def _traced_group(base: type) -> type:
    """The threaded group with every collective reported once, at its outermost call."""

    def traced(method: str, op: str, tensors: int) -> Any:
        original = getattr(base, method)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            depth = getattr(self, "_tpcheck_depth", 0)
            if depth == 0:
                every = (*args, *kwargs.values())
                opts = next((a for a in every if hasattr(a, "reduceOp")), None)
                record(op, self, every[:tensors], every, opts)
            self._tpcheck_depth = depth + 1
            try:
                return original(self, *args, **kwargs)
            finally:
                self._tpcheck_depth = depth

        return call

    methods = {m: traced(m, *how) for m, how in _METHODS.items() if hasattr(base, m)}
    return type("TracedThreadGroup", (base,), methods)
