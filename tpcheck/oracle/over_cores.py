"""Independent runs of the reference over the processors: each share in a child that is forked for
it, which hands back what its runs gave and ends."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")

#: Runs that a child makes, at least. With fewer, it costs more to hand them over than to make them.
SHARE = 4


def over_cores(
    runs: Sequence[Callable[[], T]],
    pack: Callable[[T], Any],
    unpack: Callable[[Any], T],
    *,
    least: int = SHARE,
) -> list[T]:
    """What each gives, in order. None may depend on what another one changes. Where a child can't
    be used, or does not come to its end, its share is run here.

    Args:
        pack, unpack: what a child hands over, which is to be pickled fast, and back.
        least: runs that a child makes, at least.

    Raises:
        BaseException: what a run raises.
    """
    count = min(_cores(), len(runs) // least)
    if count < 2 or not _may_fork():
        return [run() for run in runs]
    shares = [range(k, len(runs), count) for k in range(count)]
    found: dict[int, T] = {}
    children: list[_Child] = []
    try:
        for own in shares[1:]:
            children.append(_Child([runs[i] for i in own], pack))
        found |= {i: runs[i]() for i in shares[0]}
        for child, own in zip(children, shares[1:], strict=True):
            given = child.given()
            of_it = [runs[i]() for i in own] if given is None else map(unpack, given)
            found |= dict(zip(own, of_it, strict=True))
    finally:
        for child in children:
            child.end()
    return [found[i] for i in range(len(runs))]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _may_fork() -> bool:
    """Not where threads do what a child would wait for: of a process group, or of a device's
    autograd."""
    return not (dist.is_available() and dist.is_initialized()) and not torch.cuda.is_initialized()


class _Child:
    """A process that makes some runs and hands over what they give."""

    def __init__(self, runs: Sequence[Callable[[], Any]], pack: Callable[[Any], Any]) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(writer)
            self._from = os.fdopen(reader, "rb")
            return
        code = 1
        try:
            os.close(reader)
            data = pickle.dumps([pack(run()) for run in runs], protocol=pickle.HIGHEST_PROTOCOL)
            with os.fdopen(writer, "wb") as to:
                to.write(data)
            code = 0
        finally:  # nothing of the driver is to end twice
            os._exit(code)

    def given(self) -> list[Any] | None:
        """What it handed over; None where it did not come so far."""
        data = self._from.read()
        try:
            return list(pickle.loads(data))
        except (EOFError, pickle.UnpicklingError):
            return None

    def end(self) -> None:
        """Waits for it, having ended what goes on."""
        self._from.close()
        try:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
