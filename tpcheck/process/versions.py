"""Whether a dict has changed, without a look at what it holds: that would write to each value's
count of references, and so copy the memory of all of them into a process that was just forked.

CPython numbers the changes of dicts (PEP 509), up to 3.12.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import sys
from array import array
from collections.abc import Iterable
from typing import Any

#: Bytes into a dict: after its count of references, its type, and its length.
_AT = 24


class Versions:
    """The numbers of the last changes of the attributes of modules and classes.

    Args:
        owners: whose; they are kept.
    """

    def __init__(self, owners: Iterable[Any]) -> None:
        self._spaces = [_space(owner) for owner in owners]
        self._numbers = [_number(id(space)) for space in self._spaces] if _KNOWN else []
        self._seen = self._now()

    def anew(self) -> Versions:
        """Those of the same owners, seen now."""
        made = copy.copy(self)
        made.see()
        return made

    @property
    def changed(self) -> Iterable[int]:
        """The indices of those that may have changed since they were last seen: of all, where
        Python keeps no numbers."""
        if not _KNOWN:
            return range(len(self._spaces))
        now = self._now()
        if now == self._seen:
            return ()
        return [i for i, seen in enumerate(self._seen) if now[i] != seen]

    def see(self) -> None:
        """Counts changes from now on."""
        self._seen = self._now()

    def _now(self) -> array[int]:
        return array("Q", [number.value for number in self._numbers])


def _space(owner: Any) -> dict[Any, Any]:
    space = vars(owner)
    if not isinstance(space, dict):  # a class shows a view of its own
        (space,) = gc.get_referents(space)
    return space


def _number(at: int) -> ctypes.c_uint64:
    """That of the dict at this address, as long as the dict lives."""
    return ctypes.c_uint64.from_address(at + _AT)


def _is_kept() -> bool:
    """Whether the numbers are there, and are what they are taken for."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 13):
        return False
    space: dict[str, int] = {"a": 1}
    numbers = [_number(id(space)).value]
    for change in (lambda: space.get("a"), lambda: space.update(a=2), lambda: space.pop("a")):
        change()
        numbers.append(_number(id(space)).value)
    first, read, updated, popped = numbers
    return first == read and len({first, updated, popped}) == 3


_KNOWN = _is_kept()
