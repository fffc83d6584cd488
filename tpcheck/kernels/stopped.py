"""What ends a kernel in the interpreter, since a GPU would not do as it does."""

from __future__ import annotations

from tpcheck.errors import counted
from tpcheck.evidence import Stray, Unkept, Wrapped


class NotModelled(Exception):
    """What a kernel does, and nothing here does as a GPU does."""


class Stopped(Exception):
    """What a kernel does that a GPU would not do as this interpreter does; it was not done."""

    def __init__(self, found: Stray | Wrapped | Unkept) -> None:
        where = f"in {found.kernel}, line {found.line}, program {found.program}"
        super().__init__(f"{_told(found)}, {where}")
        self.found = found


def _told(found: Stray | Wrapped | Unkept) -> str:
    match found:
        case Stray(access=what, tensor=near, offset=offset, lanes=lanes):
            there = f"{counted(offset, 'byte')} from the first element of {near}"
            beside = there if near else "near none"
            return f"{what} outside of every argument, {beside}, {counted(lanes, 'lane')}"
        case Wrapped(operation=operation, bits=bits):
            return f"{operation} of int{bits} overflows"
        case Unkept(promise=promise, values=values):
            return f"tl.{promise} of {list(values)} does not hold"
