"""The files that targets name, and what can be seen of them before any is imported.

Loads no torch: a folder that is missing or a file that does not parse is told of at once.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from tpcheck.comms import frames
from tpcheck.errors import InvalidArgument, shown

#: Heavy libraries that checks use: word in a file → what ranks load of it before they are forked,
#: while the driver still imports the files.
_HEAVY = {
    "transformers": "transformers.models.llama.modeling_llama",
    "megatron": "megatron.core.models.gpt.gpt_model",
}

#: What may give a module names that its text does not show; `sys.…` may give it modules, too.
_HIDDEN = {"globals", "locals", "vars", "setattr", "exec", "eval", "sys"}


class NothingParses(InvalidArgument):
    """No file that was named parses."""


class DoesNotImport(InvalidArgument):
    """A file raises when it is imported.

    Args:
        said: what it raises.
        line: the last of its own lines that this came through, where it is known.
    """

    def __init__(self, file: Path, said: str, line: int | None) -> None:
        at = f" (line {line})" if line else ""
        super().__init__(f"{file} does not import: {said}{at}")
        self.line = line


def look(targets: Iterable[str]) -> list[str]:
    """Why importing what `targets` name is likely to fail, a line each: a module that is not found,
    a name that is bound nowhere, a file among others that does not parse. Nothing is imported for
    it, so that it is no verdict: an import may succeed nevertheless.

    Raises:
        InvalidArgument: a target names no Python file, or none of the files parses.
    """
    doubts: list[str] = []
    trees: dict[Path, ast.Module | InvalidArgument] = {}
    for target in targets:
        path, name = parted(target)
        for file in files_at(path):
            if file not in trees:
                trees[file] = tree = _tree(file)
                if isinstance(tree, InvalidArgument):
                    doubts.append(str(tree))
                else:
                    doubts += [f"{file} imports {one}" for one in _missing(tree, file)]
            tree = trees[file]
            if name and isinstance(tree, ast.Module) and not _may_bind(tree, name):
                doubts.append(f"{file} binds no {name}")
    errors = [tree for tree in trees.values() if isinstance(tree, InvalidArgument)]
    if errors and len(errors) == len(trees):
        raise NothingParses(str(errors[0]))
    return doubts


def parted(target: str) -> tuple[str, str]:
    """`FILE::NAME` → both; the name of a whole file or folder is empty."""
    path, given, name = target.partition("::")
    if given and not name:
        raise InvalidArgument(f"{target} names no check: give FILE::NAME, or the file alone")
    return path, name


def files_at(path: str) -> list[Path]:
    """The file at `path`, or those of the folder there.

    Raises:
        InvalidArgument: there is no Python file.
    """
    if not path:
        raise InvalidArgument("an empty name was given: give a file, a folder or FILE::NAME")
    place = Path(path)
    try:
        is_folder, is_file = place.is_dir(), place.is_file()
        files = _below(place) if is_folder else [place]
    except (OSError, ValueError) as error:  # too long a name, a NUL byte, no permission
        raise InvalidArgument(f"can't read {shown(path)}: {error}") from None
    if is_folder:
        if not files:
            raise InvalidArgument(f"the folder {path} has no Python file to collect checks from")
        return files
    if not is_file:
        what = "is not a regular file" if os.path.lexists(place) else "no such file or folder"
        raise InvalidArgument(f"{what}: {path}")
    if place.suffix != ".py":
        raise InvalidArgument(f"{path} is not a Python file: give a .py file or a folder of them")
    return [place]


def _below(folder: Path) -> list[Path]:
    """The Python files of a folder, in order. Links that lead nowhere, folders and pipes of such a
    name are none, and what begins with a dot or an underscore is left out."""
    return sorted(
        file
        for file in folder.rglob("*.py")
        if not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        and file.is_file()
    )


def heavy_imports(targets: Iterable[str]) -> list[str]:
    """Modules of heavy libraries that the files to be collected mention."""
    found = set()
    for target in targets:
        files: list[Path] = []
        with contextlib.suppress(InvalidArgument):  # `collect` says what is wrong with it
            files = files_at(target.partition("::")[0])
        for file in files:
            with contextlib.suppress(OSError):
                source = file.read_text(errors="replace")
                found |= {module for word, module in _HEAVY.items() if word in source}
    return sorted(found)


def root(file: Path) -> Path:
    """The folder of the outermost package that the file is in."""
    folder = file.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder


def does_not_import(file: Path, error: BaseException) -> DoesNotImport:
    """What is said of a file that raises."""
    parsing = isinstance(error, SyntaxError) and _is_same(error.filename, file)
    own = cast(SyntaxError, error) if parsing else None
    line = line_in(file, error) or (own.lineno if own else None)
    # the text of a syntax error has the file and the line once more
    text = own.msg if own else frames.line_of(error)
    return DoesNotImport(file, f"{frames.kind_of(error)}: {text}", line)


def line_in(file: Path, error: BaseException) -> int | None:
    """The last of the file's own lines that the error came through, where it did."""
    came = reversed(traceback.extract_tb(error.__traceback__))
    return next((frame.lineno for frame in came if frame.filename == str(file)), None)


def declared_at(file: Path, error: InvalidArgument) -> InvalidArgument:
    """A mistake of a declaration in the file, with the line of that."""
    line = line_in(file, error)
    if line is not None and "line" not in vars(error):  # else another file has told of it
        error.args = (f"{error} at {file.name}:{line}",)
        vars(error)["line"] = line
    return error


def _is_same(name: object, file: Path) -> bool:
    return isinstance(name, str) and Path(name).resolve() == file.resolve()


# ---- what its text shows


def _tree(file: Path) -> ast.Module | InvalidArgument:
    """The file's tree, or why it does not parse. An empty one where it can't be read or is too deep
    for the parser, which the import says in its turn."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the import says them
            return ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        return does_not_import(file.resolve(), error)
    except (OSError, ValueError, RecursionError, MemoryError):
        return ast.Module([ast.ImportFrom("", [ast.alias("*")], 0)], [])


def _missing(tree: ast.Module, file: Path) -> Iterator[str]:
    """What the file imports as it begins to run, and nobody finds. What stands under an `if` or a
    `try` may be meant to be missing."""
    for node in tree.body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        for first in {name.partition(".")[0] for name in names}:
            if not _is_found(first, file.resolve()) and not _hides(tree):
                yield first


def _is_found(name: str, file: Path) -> bool:
    if name in sys.modules:
        return True
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        if importlib.util.find_spec(name) is not None:
            return True
    beside = [str(folder) for folder in (Path.cwd(), file.parent, root(file))]
    return importlib.machinery.PathFinder.find_spec(name, beside) is not None


def _may_bind(tree: ast.Module, name: str) -> bool:
    """Whether the module may have such a variable once it is imported."""
    return name in set(_bound(tree)) or _hides(tree)


def _hides(tree: ast.Module) -> bool:
    """Whether something in the file may bind names or find modules that its text does not show."""
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return bool(words & _HIDDEN) or "*" in set(_bound(tree))


def _bound(tree: ast.Module) -> Iterator[str]:
    """Every name that is bound anywhere in the file; `*` stands for any."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
