"""Where the ranks of a world meet: in a file, or in the store of a launcher."""

from __future__ import annotations

from typing import Any

import torch

#: How the name of a launcher's store begins.
_TCP = "tcp://"


def store_of(name: str, size: int) -> Any:
    """A file, or `tcp://ADDRESS:PORT/PREFIX` of a launcher's store."""
    if not name.startswith(_TCP):
        return torch._C._distributed_c10d.FileStore(name, size)
    where, _, prefix = name.removeprefix(_TCP).partition("/")
    address, _, port = where.rpartition(":")
    c10d_store = torch._C._distributed_c10d
    store = c10d_store.TCPStore(address, int(port), size, is_master=False, wait_for_workers=False)
    return c10d_store.PrefixStore(prefix, store)


def is_launched(name: str) -> bool:
    """Whether it is that of a launcher, whose processes may be on several machines."""
    return name.startswith(_TCP)
