"""The environment of this process, and who set what in it. A module sets things for good when it is
imported, and would not do so again for the next who imports it; what a file of checks sets is its
own."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from types import FrameType

#: Set anew for each case, as a launcher would (`ranks/worlds.py`).
_OF_EACH_CASE = ("RANK", "LOCAL_RANK", "WORLD_SIZE")

Environment = dict[str, str]


#: The environment when it was last read: as Python holds it, and as people know it.
_read: tuple[dict[bytes, bytes], Environment] = {}, {}


def read() -> Environment:
    global _read
    held: Mapping[bytes, bytes] = getattr(os.environb, "_data", os.environb)
    if held != _read[0]:  # to decode it takes longer than all else that is read for a case
        found = {name: value for name, value in os.environ.items() if name not in _OF_EACH_CASE}
        _read = dict(held), found
    return _read[1]


def write(value: Environment) -> None:
    for name in set(read()) - set(value):
        del os.environ[name]
    os.environ.update(value)


def set_variable(name: str, value: str | None) -> None:
    """None: there is none of this name."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def changed(before: Mapping[str, str]) -> dict[str, str | None]:
    """What has been set in this process since (None: unset), but by modules when they were
    imported: who imports them has it by that."""
    now = read()
    found: dict[str, str | None] = {n: v for n, v in now.items() if before.get(n) != v}
    gone = before.keys() - now.keys() - set(_OF_EACH_CASE)
    return {n: v for n, v in {**found, **dict.fromkeys(gone)}.items() if n not in _setters.names}


#: What stood in the places of variables that this process was given.
_replaced: dict[str, str | None] = {}


def give(variables: Mapping[str, str | None]) -> None:
    """Sets (None: unsets) these, in the place of what was given before."""
    for name, value in _replaced.items():
        set_variable(name, value)
    _replaced.clear()
    _replaced.update({name: os.environ.get(name) for name in variables})
    for name, value in variables.items():
        set_variable(name, value)


class _Setters:
    """What Python sets variables by, and the names of those that modules set while they were
    imported; `importing` is the file of checks, itself no such module, that is being imported."""

    def __init__(self) -> None:
        self.put, self.unset = os.putenv, os.unsetenv
        self.names: set[str] = set()
        self.importing: str | None = None
        self.watching = False

    def watch(self) -> None:
        """From here on it is noted who sets what."""
        if not self.watching:
            self.watching = True
            os.putenv, os.unsetenv = self._putting, self._unsetting  # type: ignore[assignment]

    def _putting(self, name: bytes, value: bytes, /) -> None:
        self._note(name)
        self.put(name, value)

    def _unsetting(self, name: bytes, /) -> None:
        self._note(name)
        self.unset(name)

    def _note(self, name: bytes | str) -> None:
        frame = sys._getframe(2)
        if self._by_a_module(frame) or _compiles(frame.f_back):
            self.names.add(os.fsdecode(name))
        else:
            self.names.discard(os.fsdecode(name))

    def _by_a_module(self, frame: FrameType | None) -> bool:
        """Whether what leads here is the import of a module, other than that of the checks: the
        innermost of those that are under way counts."""
        while frame is not None:
            caller = frame.f_back
            if frame.f_code.co_name == "<module>" and _imports(caller):
                return os.path.realpath(frame.f_code.co_filename) != self.importing
            frame = caller
        return False


def _compiles(frame: FrameType | None) -> bool:
    """Whether it is of torch's compiler, which says there where its cache is."""
    name = "" if frame is None else str(frame.f_globals.get("__name__"))
    return name.startswith(("torch._dynamo.", "torch._inductor."))


def _imports(frame: FrameType | None) -> bool:
    """Whether it is where Python's own import calls a module's code."""
    return frame is not None and frame.f_code.co_name == "_call_with_frames_removed"


_setters = _Setters()


def watch() -> None:
    """From here on it is noted which variables modules set while they are imported."""
    _setters.watch()


@contextlib.contextmanager
def importing(file: str | None) -> Iterator[None]:
    """In the block a file of checks is imported: what its own lines set is not a module's."""
    before, _setters.importing = _setters.importing, file
    try:
        yield
    finally:
        _setters.importing = before


def kept(before: Environment) -> Environment:
    """What holds from now on in a process where modules were imported: `before`, and what they set.
    All that there is, where nobody has noted who set what."""
    now = read()
    if not _setters.watching:
        return now
    held = {name: value for name, value in before.items() if name not in _setters.names}
    return held | {name: now[name] for name in _setters.names if name in now}
