"""Triton kernels on the CPU: what tpcheck replaces in its interpreter, and what programs touch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def interpreted(
    show: Callable[[], list[str]], own: Mapping[str, Tensor], configuration: int
) -> list[str]:
    """What is shown under the interpreter, where accesses outside of the tensors of a launch, and
    programs that race, are told.

    Args:
        own: tensors whose elements, and nothing beside them, a launch may touch.
        configuration: the index of that in which autotuned kernels run.
    """
    # carried along in this file
    from tpcheck.kernels import configurations, interpreter, watch
    from tpcheck.kernels.stopped import Stopped

    interpreter.install()
    with watch.watching(own) as seen, configurations.chosen(configuration):
        try:
            found = show()
        except Exception as error:
            stopped: BaseException | None = error
            while stopped is not None and not isinstance(stopped, Stopped):
                stopped = stopped.__cause__
            if stopped is None:
                raise
            return [f"stopped: {stopped}"]
    return [*found, *map(raced, seen.races)]


def raced(race: Any) -> str:
    first, second = race.programs
    return (
        f"race: {race.kernel}, line {race.line}: {race.access} by program {first} and "
        f"{race.other} by program {second}, {race.offset} bytes from the start of {race.tensor}"
    )
