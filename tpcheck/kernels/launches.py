"""Which Triton kernels are launched, interpreted or compiled, by name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import get_ident
from typing import Any

Listener = Callable[[str], None]

#: (thread, who is told of its launches): ranks may be threads of one process.
_listeners: list[tuple[int, Listener]] = []


@contextmanager
def told(listener: Listener) -> Iterator[None]:
    """`listener(name)` is called at each launch in the block: of this thread, and of autograd's
    own threads on a GPU, where a process is one rank."""
    entry = (get_ident(), listener)
    _listeners.append(entry)
    try:
        yield
    finally:
        _listeners.remove(entry)


def tell(kernel: str) -> None:
    """A kernel is being launched."""
    own = [listener for thread, listener in _listeners if thread == get_ident()]
    if not own and len(_listeners) == 1:
        own = [listener for _, listener in _listeners]
    for listener in own[-1:]:
        listener(kernel)


@cache
def install() -> None:
    """Has launches of compiled kernels told, once per process; does nothing without Triton."""
    if importlib.util.find_spec("triton") is None:
        return
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def run_and_tell(function: Any, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        if not warmup:
            tell(function.fn.__name__)
        return run(function, *arguments, grid=grid, warmup=warmup, **named)

    JITFunction.run = run_and_tell
