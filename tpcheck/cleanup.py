"""What a candidate's builder asks to be undone when its case is over: ranks are kept warm."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

_case = threading.local()  # with the threads engine, each rank has its own


def at_case_end(undo: Callable[[], object]) -> None:
    """Has `undo()` called on this rank when the case is over, whatever came of it."""
    if not hasattr(_case, "stack"):
        _case.stack = contextlib.ExitStack()
    _case.stack.callback(undo)


def end_case() -> None:
    """Undoes what was asked for, the last first."""
    stack = getattr(_case, "stack", None)
    if stack is not None:
        del _case.stack
        stack.close()
