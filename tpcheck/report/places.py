"""The line that a result points to: of the candidate where the failure says one, else the one that
defines the check."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from tpcheck.causes.loaded import is_the_loaders
from tpcheck.causes.structure import GivenUp
from tpcheck.comms import frames
from tpcheck.event import averaging
from tpcheck.evidence import Race, Stray, Unkept, Wrapped
from tpcheck.evidence.pictures import LOADER
from tpcheck.verdict import CheckResult, Counterexample
from tpcheck.vocabulary import Code

#: A file, and a line of it where that is known.
Place = tuple[str, int | None]


def place(result: CheckResult, folder: Path) -> Place | None:
    """Where to look, in the files of a folder: (path below it, line). None where all that is known
    is elsewhere, in installed packages say."""
    found = result.counterexample
    for file, line in _pointed_at(found, folder) if found else ():
        if (path := below(file, folder)) is not None:
            return path, line
    if result.address is None:
        return None
    file, _, name = result.address.partition("::")  # no name of a file that does not import
    path = below(file, folder)
    return None if path is None else (path, result.line or _defined(file, name))


def below(file: str, folder: Path) -> str | None:
    """The path of a file in a folder, but for what is installed there."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # a NUL byte, a loop of links
        path = Path(file).resolve().relative_to(folder.resolve())
        return None if "site-packages" in path.parts else path.as_posix()
    return None


def _pointed_at(found: Counterexample, folder: Path) -> Iterator[tuple[str, int]]:
    """The lines that a failure names, the diagnosed cause's first, then where its ranks were."""
    cause, own = found.diagnosis.cause, [m for m in found.mismatches if not m.is_consequence]
    if is_the_loaders(cause) and found.pictures is not None:
        yield from _at(found.pictures.code.get(LOADER, ""), folder)
    if found.diagnosis.code is Code.AVERAGED_NOT_SUMMED:
        yield from _at(averaging(found.trace.values()), folder)
    seen = getattr(cause, "seen", None)
    parted = getattr(seen, "parted", None) or ()
    for what in (*parted, cause, seen, *(m.detail for m in own)):
        yield from _at(str(getattr(what, "where", "")), folder)
        if isinstance(what, (Stray, Wrapped, Unkept, Race)):
            yield from ((file, what.line) for file in _only(_with(what.kernel, folder)))
    at_work = cause.rank if isinstance(cause, GivenUp) else None
    for mismatch in sorted(own, key=lambda m: m.rank != at_work):
        yield from frames.of_stack(str(mismatch.scene.stack or ""))


def _at(where: str, folder: Path) -> Iterator[tuple[str, int]]:
    """The file and line of `mlp.py:41`."""
    base, _, line = where.rpartition(":")
    if line.isdecimal():
        yield from ((file, int(line)) for file in _only(_named(base, folder)))


def _named(base: str, folder: Path) -> set[str]:
    """The files of this name in the folder that were imported."""
    return {file for file in _imported(folder) if Path(file).name == base}


def _with(function: str, folder: Path) -> set[str]:
    """The files in the folder that were imported and define a function of this name."""
    return {file for file in _imported(folder) if _defined(file, function) is not None}


def _only(files: set[str]) -> set[str]:
    """The file that is meant; of several nobody knows which."""
    return files if len(files) == 1 else set()


def _imported(folder: Path) -> set[str]:
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {
        file
        for file in files
        if isinstance(file, str) and file.endswith(".py") and below(file, folder) is not None
    }


def _defined(file: str, name: str) -> int | None:
    """The line on which a file gives something this name; None where no line says it, as of checks
    that are made in a loop."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    for node in ast.walk(tree):  # the top of the file comes first
        match node:
            case ast.Assign(targets=targets):
                names = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=own)):
                names = {own}
            case ast.FunctionDef(name=own) | ast.ClassDef(name=own):
                names = {own}
            case _:
                continue
        if name in names:
            return int(node.lineno)
    return None
