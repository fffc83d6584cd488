"""What shows that a candidate takes the path that it is meant to take, counted as it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tpcheck.comms.trace import Recorder
from tpcheck.event import COLLECTIVES
from tpcheck.kernels import interpreter, launches


@contextmanager
def counted(recorder: Recorder, names: frozenset[str]) -> Iterator[None]:
    """Kernels and operators of these names that run in the block are counted by the recorder,
    which has the collectives anyway."""
    recorder.witnesses = names - COLLECTIVES
    if any("::" not in name for name in recorder.witnesses):
        _install()
    with launches.told(recorder.count):
        yield


def _install() -> None:
    """Has kernels told, though the candidate may not have imported Triton yet."""
    if interpreter.interprets():
        interpreter.install()
    else:
        launches.install()
