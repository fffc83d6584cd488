"""Whether a dict has changed, without a look at what it holds: that would write to each value's
count of references, and so copy the memory of all of them into a process that was just forked.

CPython numbers the changes of dicts (PEP 509), up to 3.12.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any

#: Bytes into a dict: after its count of references, its type, and its length.
_AT = 24


def version(owner: Any) -> int | None:
    """The number of the last change of a module's or class's attributes; None where Python keeps
    none."""
    if not _KNOWN:
        return None
    space = vars(owner)
    if not isinstance(space, dict):  # a class shows a view of its own
        (space,) = gc.get_referents(space)
    return _number(space)


def _number(space: dict[Any, Any]) -> int:
    return ctypes.c_uint64.from_address(id(space) + _AT).value


def _is_kept() -> bool:
    """Whether the numbers are there, and are what they are taken for."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 13):
        return False
    space: dict[str, int] = {"a": 1}
    numbers = [_number(space)]
    for change in (lambda: space.get("a"), lambda: space.update(a=2), lambda: space.pop("a")):
        change()
        numbers.append(_number(space))
    first, read, updated, popped = numbers
    return first == read and len({first, updated, popped}) == 3


_KNOWN = _is_kept()
