"""How many threads torch computes with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One, in the block. Small operations gain nothing from more, which go on turning for some
    milliseconds after each, on processors that the ranks need. The process's own setting comes
    back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
