"""A process group of ranks that are not there: for what must find one, and starts none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch.distributed as dist


@contextlib.contextmanager
def fake_ranks(size: int, *, rank: int = 0) -> Iterator[None]:
    """This process is `rank` of `size`; what it sends goes nowhere."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()
