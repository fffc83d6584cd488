"""A launch whose programs order themselves by atomics, run again from its last program to its
first: what is right in one order by luck races in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tpcheck.kernels import refusals
from tpcheck.kernels.held import Held
from tpcheck.kernels.watch import Launch


def reverse(
    builder: Any,
    changed: Sequence[Held],
    watched: AbstractContextManager[Launch | None],
    run: Callable[[], object],
) -> None:
    """Runs a launch again, and leaves memory as the first run has. A program that waits for one
    that has not run ends it.

    Args:
        builder: Triton's.
        changed: what memory held before each change of the first run.
        watched: in which the second one runs.
    """
    after = [held.again() for held in changed]
    _put_back(changed)
    again: Sequence[Held] = ()
    try:
        with _from_the_last(builder), watched as second:
            assert second is not None
            again = second.changes
            run()
    except Exception as error:
        if not any(isinstance(one, refusals.Waits) for one in refusals.causes(error)):
            raise
    finally:
        _put_back(again)
        for held in after:
            held.put_back()


def _put_back(changed: Sequence[Held]) -> None:
    for held in reversed(changed):
        held.put_back()


@contextmanager
def _from_the_last(builder: Any) -> Iterator[None]:
    set_grid_idx = builder.set_grid_idx

    def from_the_last(*index: int) -> None:
        set_grid_idx(*(n - 1 - at for n, at in zip(builder.grid_dim, index, strict=True)))

    builder.set_grid_idx = from_the_last
    try:
        yield
    finally:
        del builder.set_grid_idx
