"""A world of one rank: it serves again and again, and the process has none of its own after it."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed._functional_collectives import all_reduce

from tpcheck.plan.unknown_style import fake_mesh
from tpcheck.process.alone import alone, mesh_of_one


def summed(tensor: torch.Tensor, group: object) -> torch.Tensor:
    tensor = tensor.clone()
    dist.all_reduce(tensor, group=group)  # type: ignore[arg-type]
    return tensor


def test_its_collectives_change_nothing_and_its_groups_serve_again() -> None:
    ones = torch.ones(2)
    with alone():
        mesh = mesh_of_one(["dp", "tp"])
        group = mesh["tp"].get_group()
        assert (dist.get_world_size(), mesh.shape, group.size()) == (1, (1, 1), 1)
        assert torch.equal(summed(ones, group), ones)
    with alone(), alone():
        assert mesh_of_one(["dp", "tp"]) is mesh
        assert torch.equal(summed(ones, group), ones)
        scattered = torch.empty(2)
        dist.reduce_scatter(scattered, [ones], group=group)
        assert torch.equal(scattered, ones)


def test_outside_it_the_process_is_as_it_was() -> None:
    own, hook = c10d._world, sys.excepthook
    with alone():
        assert dist.is_initialized()
    assert not dist.is_initialized()
    assert (c10d._world, sys.excepthook) == (own, hook)
    with pytest.raises(ZeroDivisionError), alone():
        raise ZeroDivisionError
    assert c10d._world is own


def test_other_worlds_come_and_go_beside_it() -> None:
    with alone():
        group = mesh_of_one(["tp"])["tp"].get_group()
    with fake_mesh(4) as mesh:
        assert mesh.size() == 4
        with alone():
            assert dist.get_world_size() == 1
        assert dist.get_world_size() == 4
    with alone():
        assert dist.get_process_group_ranks(group) == [0]
        assert torch.equal(all_reduce(torch.ones(1), "sum", group), torch.ones(1))  # by its name
        assert torch.equal(summed(torch.ones(1), group), torch.ones(1))


@pytest.mark.parametrize("all_of_it", [False, True])
def test_one_that_was_destroyed_is_made_anew(all_of_it: bool) -> None:
    with alone():
        group = mesh_of_one(["tp"])["tp"].get_group()
        dist.destroy_process_group(None if all_of_it else group)
    for _ in range(2):
        with alone():
            group = mesh_of_one(["tp"])["tp"].get_group()
            assert torch.equal(summed(torch.ones(1), group), torch.ones(1))
            assert torch.equal(all_reduce(torch.ones(1), "sum", group), torch.ones(1))
