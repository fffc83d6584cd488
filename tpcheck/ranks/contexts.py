"""The contexts around what a candidate does: those that its check opens, and that in which it is
watched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from tpcheck.errors import InvalidArgument, shown
from tpcheck.process import branches
from tpcheck.ranks.witnesses import counted

Context = contextlib.AbstractContextManager[Any]


def around(run: Any) -> Context:
    """Of a microbatch's forward and backward.

    Args:
        run: the `RankRun`.
    """
    return _of(run.parts, "context")


def around_forward(run: Any) -> Context:
    """Of a forward alone."""
    return _of(run.parts, "forward_context")


@contextlib.contextmanager
def noting(run: Any) -> Iterator[None]:
    """What runs of witnesses there are is noted; and which branches are taken, where that is asked
    for, and nothing compiles the code that takes them."""
    asked = run.work.branches and not run.report.compiles
    own = counted(run.recorder, run.work.witnesses)
    with own, branches.noted(on=asked) as taken:
        yield
    run.report.ways |= taken.words()


def _of(parts: Mapping[str, Any], which: str) -> Context:
    """A new one each time: those that a generator makes open once.

    Raises:
        InvalidArgument: what the check gives is none.
    """
    if (make := parts.get(which)) is None:
        return contextlib.nullcontext()
    made = make()
    if not (hasattr(type(made), "__enter__") and hasattr(type(made), "__exit__")):
        raise InvalidArgument(
            f"the check's {which} returned {shown(made)}; return a context manager, as "
            f"{which}=loss_parallel does"
        )
    found: Context = made
    return found
