"""Whose frame is it? The one place that tells a user's code from tpcheck's, and that of what it
stands on.

Imports no torch, so that reports can ask without it.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import threading
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tpcheck.errors import InvalidArgument

#: Characters of a user's error in a line of ours. More, and its line fills the terminal; fewer cut
#: off what torch says of shapes and dtypes.
SHOWN = 300


_PACKAGE = str(Path(__file__).parent.parent)
#: Where Python's own modules are, and the folders in it of what is installed.
_STANDARD = str(Path(threading.__file__).parent) + os.sep
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


@cache
def _library() -> tuple[str, ...]:
    """Beginnings of file names that are not a user's. Folders end with a separator: torchtitan,
    torchao and torchrec are installed beside torch, and `tpcheck_checks.py` may be beside tpcheck.
    """
    specs = map(importlib.util.find_spec, ("torch", "triton", "hypothesis"))
    folders = [_PACKAGE, *(f for s in specs if s for f in s.submodule_search_locations or ())]
    wraps = importlib.util.find_spec("typing_extensions")  # what torch says is deprecated
    files = [str(wraps.origin)] if wraps is not None else []
    return (*(folder + os.sep for folder in folders), *files, "<")


def is_users(path: str) -> bool:
    """Whether a frame of the file `path` is the user's: neither that of torch, Triton, tpcheck or
    Python itself, nor generated code's."""
    if path.startswith(_library()):
        return False
    return not path.startswith(_STANDARD) or any(folder in path for folder in _INSTALLED)


def users(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of `error`'s traceback that are the user's, the outermost first; and those of what
    a library has raised it for, as Triton's interpreter does for whatever a kernel raises."""
    every = traceback.extract_tb(error.__traceback__)
    own, last = [f for f in every if is_users(f.filename)], every[-1].filename if every else ""
    if error.__cause__ is None or is_users(last) or last.startswith(_PACKAGE + os.sep):
        return own
    return own + [f for f in users(error.__cause__) if f not in own]


def of_stack(stack: str) -> Iterator[tuple[str, int]]:
    """The user's frames of a stack as text, each a file and a line, the innermost first: a
    traceback has them last, faulthandler's dump first."""
    found = re.findall(r'File "([^"\n]+)", line (\d+)', stack)
    innermost = found if "most recent call first" in stack else found[::-1]
    yield from ((file, int(line)) for file, line in innermost if is_users(file))


def is_within(file: str | Path, name: str, line: int) -> bool:
    """Whether this line of a file is in a class or a function of this name."""
    try:
        text = Path(file).read_bytes()
        nodes = ast.walk(ast.parse(text)) if name.encode() in text else ()
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    return any(
        node.name == name and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in nodes
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    )


def through(error: BaseException) -> list[str]:
    """The modules of tpcheck (`oracle.passes`) that were left by `error`, the outermost first;
    without those that raise it in the place of what would end the process, or for a name that
    tpcheck does not have."""
    package = Path(__file__).parent.parent
    files = [Path(f.filename) for f in traceback.extract_tb(error.__traceback__)]
    inside = [file.relative_to(package) for file in files if file.is_relative_to(package)]
    found = [".".join(file.with_suffix("").parts) for file in inside]
    return [name for name in found if name not in ("process.exits", "__init__")]


def text_of(error: BaseException) -> str:
    """The error's text, of an `assert` without one its line; a user's class may fail to give
    one."""
    try:
        said = str(error)
    except Exception:
        return "(its text can't be shown)"
    if said or not isinstance(error, AssertionError) or error.__traceback__ is None:
        return said
    last = traceback.extract_tb(error.__traceback__)[-1]
    at = "" if is_users(last.filename) else f" at {Path(last.filename).name}:{last.lineno}"
    return f"{last.line}{at}"


def line_of(error: BaseException) -> str:
    """The error's text in one line, as far as it is shown: the first of several may say nothing."""
    return " ".join(text_of(error).split())[:SHOWN]


def kind_of(error: BaseException) -> str:
    """The name of its class, in one line whatever a user's class is called."""
    return " ".join(type(error).__name__.split())


def in_a_line(error: BaseException) -> str:
    """`raised ValueError: no such size at my_checks.py:12`: the error of a callable of the user's,
    with the line that raised it."""
    own = users(error)
    at = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return f"raised {kind_of(error)}: {line_of(error)}{at}"


def stack(error: BaseException) -> str:
    """The traceback in the user's own code. Where none of it is, all of it, but of an argument that
    is refused: its text says what to do, and tpcheck's own lines say nothing more."""
    frames: Iterable[Any] = users(error)
    if not frames and not isinstance(error, InvalidArgument):
        frames = traceback.extract_tb(error.__traceback__)
    return "".join(traceback.format_list(list(frames)))
