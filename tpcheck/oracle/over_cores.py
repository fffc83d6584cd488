"""Independent runs of the reference over the processors: each share in a child that is forked for
it, which hands back what its runs gave and ends."""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from tpcheck.process.cores import cores

T = TypeVar("T")

#: Runs that a child makes, at least. With fewer, it costs more to hand them over than to make them.
SHARE = 4


def over_cores(
    runs: Sequence[Callable[[], T]],
    pack: Callable[[T], Any],
    unpack: Callable[[Any], T],
    *,
    least: int = SHARE,
    instead: Sequence[Callable[[], T]] | None = None,
) -> list[T]:
    """What each gives, in order. None may depend on what another one changes. Where a child can't
    be used, or does not come to its end, its share is run here.

    Args:
        pack, unpack: what a child hands over, which is to be pickled fast, and back.
        least: runs that a child makes, at least.
        instead: what is run here for each that did not come to its end in a child. All run in
            children then: they may end the process that they are in.

    Raises:
        BaseException: what a run raises.
    """
    count = min(cores(), len(runs) // least)
    here = runs if instead is None else instead
    if count < (2 if instead is None else 1) or not _may_fork():
        return [run() for run in here]
    shares = [range(k, len(runs), count) for k in range(count)]
    found: dict[int, T] = {}
    children: list[_Child] = []
    given_away = shares[1:] if instead is None else shares
    try:
        for own in given_away:
            children.append(_Child([runs[i] for i in own], pack))
        if instead is None:
            found |= {i: runs[i]() for i in shares[0]}
        for child, own in zip(children, given_away, strict=True):
            given = child.given()
            of_it = [here[i]() for i in own] if given is None else map(unpack, given)
            found |= dict(zip(own, of_it, strict=True))
    finally:
        for child in children:
            child.end()
    return [found[i] for i in range(len(runs))]


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
            faulthandler.disable()  # an end of this kind is told by what does not come
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
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
