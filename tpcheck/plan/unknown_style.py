"""What a style does that tpcheck does not know: applied to a copy, without ranks.

torch's `fake` backend gives process groups of any size in one process, whose collectives do
nothing. On the meta device nothing is allocated, so any model can be parallelized for real.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from tpcheck.errors import InvalidArgument
from tpcheck.figures.plan_causes import StyleRaised
from tpcheck.placement import Replicate, Shard
from tpcheck.plan.styles import Inapplicable
from tpcheck.tensors.live import plan_placement


@contextlib.contextmanager
def fake_mesh(tp: int) -> Iterator[DeviceMesh]:
    """A mesh of `tp` ranks, axis "tp", of which this process is rank 0 and the others are not
    there.

    Raises:
        InvalidArgument: no degree, or a process group that exists already.
    """
    if tp < 1:
        raise InvalidArgument(f"tp={tp} is not a degree")
    if dist.is_initialized():
        raise InvalidArgument(
            "an audit without ranks makes a process group of its own, and one exists already; "
            "audit in another process, or the parallelized model with mesh=…"
        )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=tp)
    try:
        yield init_device_mesh("cpu", (tp,), mesh_dim_names=("tp",))
    finally:
        dist.destroy_process_group()


def placements(style: Any, module: nn.Module, tp: int) -> dict[str, Shard | Replicate]:
    """Parameter of `module` → where `style` puts it; those that it leaves alone are missing.

    Raises:
        Inapplicable: the style raises on such a module.
    """
    bare = copy.deepcopy(module).to("meta")
    with fake_mesh(tp) as mesh, quiet():
        try:
            style._apply(bare, mesh)
        except Exception as error:
            names = type(style).__name__, type(module).__name__
            raise Inapplicable(StyleRaised(*names, str(error))) from error
    placed = {name: plan_placement(tensor) for name, tensor in bare.named_parameters()}
    return {name: placement for name, placement in placed.items() if placement is not None}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what torch logs about meta tensors that it can't scatter."""
    logger = logging.getLogger("torch.distributed")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
