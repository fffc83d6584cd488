"""The two ends of a socket between driver and ranks. Both wait for what comes, whatever default a
candidate has set: `socket.setdefaulttimeout` reaches each socket that is made after it."""

from __future__ import annotations

import os
import socket

#: gloo opens no port beyond it.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}
#: Set to 1, it has NCCL's ranks share GPUs where there are fewer: each says that it is on a host of
#: its own, since NCCL refuses two ranks of one host on one GPU.
SHARED_GPUS = "TPCHECK_SHARED_GPUS"


def are_shared() -> bool:
    """Whether NCCL's ranks share GPUs where there are fewer."""
    return os.environ.get(SHARED_GPUS) == "1"


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends of a stream."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in ends:
        end.setblocking(True)
    return ends


def taken_over(descriptor: int) -> socket.socket:
    """The end that another process has made."""
    end = socket.socket(fileno=descriptor)
    end.setblocking(True)
    return end
