"""Process groups, and what candidates share with one another: globals, caches, class attributes."""

from __future__ import annotations

import gc
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from fixtures.parallel import collectives, linear, region, sharding
from tests.catalogue.torture.fault import GLOO, PASS, Effect, Here, kind
from tpcheck.specs import reference


@kind(Effect.LEAVES, everywhere=True)
def extra_groups(here: Here) -> None:
    """Makes process groups and leaves them."""
    ranks = dist.get_process_group_ranks(here.group)
    for _ in range(3):
        dist.new_group(ranks)


@kind(Effect.LEAVES, engines=GLOO)
def an_extra_group_on_one_rank(here: Here) -> None:
    """One rank makes a group of its own."""
    dist.new_group([dist.get_rank()], use_local_synchronization=True)


@kind(Effect.LEAVES, everywhere=True)
def its_group_destroyed(here: Here) -> None:
    """Destroys the group that it was given."""
    dist.destroy_process_group(here.group)


@kind(Effect.LEAVES, everywhere=True)
def every_group_destroyed(here: Here) -> None:
    """Destroys every group, as a script does at its end."""
    dist.destroy_process_group()


@kind(Effect.LEAVES, engines=GLOO)
def the_world_replaced(here: Here) -> None:
    """Puts another group in the place of the default one."""
    dist.group.WORLD = here.group


@kind(Effect.LEAVES)
def timeouts(here: Here) -> None:
    """Sets a timeout of a millisecond on its group."""
    dist.distributed_c10d._set_pg_timeout(timedelta(milliseconds=1), here.group)


@kind(Effect.LEAVES)
def group_names(here: Here) -> None:
    """Turns back the counter that groups are named by."""
    dist.distributed_c10d._world.group_count = 0


@kind(Effect.LEAVES)
def group_tables(here: Here) -> None:
    """Empties the tables of groups."""
    dist.distributed_c10d._world.pg_map.clear()
    dist.distributed_c10d._world.pg_names.clear()


@kind(Effect.LEAVES, "all_reduce", "own_slice", "identity")
def functions_of_its_library(here: Here) -> None:
    """Replaces a function of the library that correct candidates use, too."""
    setattr(collectives, here.variant, lambda x, *args, **kwargs: x * 2)


@kind(Effect.LEAVES, "forward", "multiply", "add_bias")
def methods_of_its_library(here: Here) -> None:
    """Replaces a method of the class that correct candidates are of."""
    own = getattr(linear.RowLinear, here.variant)
    setattr(linear.RowLinear, here.variant, lambda module, x: own(module, x) * 2)


@kind(Effect.LEAVES)
def a_class_attribute(here: Here) -> None:
    """Sets an attribute of the class that correct candidates read."""
    region.Region.sum_output = lambda module, x: x


@kind(Effect.LEAVES)
def a_constant_of_its_library(here: Here) -> None:
    """Changes a constant and a function of sharding."""
    region.SEQUENCE_DIM = 0
    sharding.shard_size = lambda size, rank, degree: 1


@kind(Effect.LEAVES)
def a_module_reloaded(here: Here) -> None:
    """Loads the library anew."""
    sys.modules.pop("fixtures.parallel.linear", None)
    __import__("fixtures.parallel.linear")


@kind(Effect.LEAVES)
def the_references_function(here: Here) -> None:
    """Replaces a function of the reference's library."""
    reference.matmul = lambda x, w, transposed=False: x.new_zeros(*x.shape[:-1], w.shape[0])
    linear.matmul = reference.matmul


_grown: list[torch.Tensor] = []


@kind(Effect.LEAVES, 64, expects=PASS)
def a_cache_that_grows(here: Here) -> None:
    """Keeps tensors of many megabytes."""
    _grown.append(torch.ones(here.variant * 2**17, dtype=torch.float64))


@kind(Effect.LEAVES, expects=PASS)
def its_own_module_kept(here: Here) -> None:
    """Keeps the module, its graph and its inputs alive."""
    _kept.append((here.module, here.value))


_kept: list[object] = []


@kind(Effect.LEAVES, everywhere=True)
def collectives_put_off(here: Here) -> None:
    """Begins to coalesce collectives, and never ends it: no all-reduce does anything any more."""
    dist.distributed_c10d._coalescing_manager(here.group).__enter__()


@kind(Effect.LEAVES)
def names_of_groups(here: Here) -> None:
    """Forgets the names of groups, by which functional collectives find them."""
    torch._C._distributed_c10d._unregister_all_process_groups()


@kind(
    Effect.LEAVES, "_rank", "_mesh_dim_names", "_dim_group_names", "_flatten_mapping", "_rank_map"
)
def the_mesh(here: Here) -> None:
    """Changes the meshes that it can find."""
    for mesh in [one for one in gc.get_objects() if type(one) is DeviceMesh]:
        setattr(mesh, here.variant, {} if here.variant == "_flatten_mapping" else None)
