"""A zygote that is started before the driver loads torch, so that both load it at the same time.

Loads no torch itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from tpcheck.engines.folder import RunFolder
from tpcheck.engines.zygote_process import ZygoteProcess
from tpcheck.protocol.leftovers import INSIDE

#: Kinds of engine that can be started before anything is known of them: whether there is a GPU is
#: torch's to say, and a launch meets its other processes first.
_KINDS = ("gloo", "threads")


class Ahead:
    """A zygote and its run's folder, for the first engine that takes them.

    Args:
        kind: of engine.
        preload: modules that it imports once for all ranks.
    """

    def __init__(self, kind: str, preload: Iterable[str]) -> None:
        self.kind, self.preload, self.taken = kind, sorted(preload), False
        self.folder = RunFolder()
        try:
            self.zygote = ZygoteProcess(kind, self.preload, self.folder)
        except BaseException:
            self.folder.remove()
            raise

    def fits(self, kind: str, preload: Iterable[str]) -> bool:
        """Whether an engine of this kind can take it; one can, once."""
        return not self.taken and (self.kind, self.preload) == (kind, sorted(preload))

    def end(self) -> None:
        """Ends the zygote that no engine has taken."""
        if not self.taken:
            self.taken = True
            with contextlib.suppress(OSError):
                self.zygote.close()
            self.folder.remove()


def taken(
    first: Ahead | None, kind: str, preload: Iterable[str]
) -> tuple[RunFolder, ZygoteProcess | None]:
    """A run's folder, and the zygote that is there already, if one is that fits."""
    if first is None or not first.fits(kind, preload):
        return RunFolder(), None
    first.taken = True
    return first.folder, first.zygote


@contextlib.contextmanager
def ahead(kind: str, preload: Iterable[str]) -> Iterator[Ahead | None]:
    """One for the block, which loads torch and then makes the engine; None where it is better not
    started yet."""
    if kind not in _KINDS or os.environ.get(INSIDE):
        yield None
        return
    first = Ahead(kind, preload)
    try:
        yield first
    finally:
        first.end()
