"""Finds `Check` objects in files, as pytest finds tests: by path, by folder, by `FILE::NAME`."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from tpcheck.check import Check
from tpcheck.comms import frames
from tpcheck.errors import InvalidArgument, did_you_mean, let_through, shown
from tpcheck.oracle.limit import one_process
from tpcheck.process import guard, own_settings
from tpcheck.search.addresses import titles
from tpcheck.search.neighbours import make_importable, packages_beside, require_own


def collect(targets: Iterable[str]) -> list[Check]:
    """The checks that `targets` name, in order, each with its variable's name.

    Raises:
        InvalidArgument: a target that does not exist, does not import, has no such check, or
            no check at all.
    """
    found: list[Check] = []
    for target in targets:
        path, given, name = target.partition("::")
        if given and not name:
            raise InvalidArgument(f"{target} names no check: give FILE::NAME, or the file alone")
        chosen = _select([load(file) for file in _files(path)], path, name)
        known = {(check.title, check.address()) for check in found}
        found += [check for check in chosen if (check.title, check.address()) not in known]
    if not found:
        raise InvalidArgument(f"no Check found in {', '.join(targets)}")
    return found


def runnable(checks: Iterable[Check]) -> tuple[list[Check], dict[str, str]]:
    """The checks whose spec can run here, and of each other one, title → why it can't;
    the title with its address where another of `checks` has the same one."""
    every = list(checks)
    reasons = [_cannot_run(check) for check in every]
    told = zip(titles(every), reasons, strict=True)
    absent = {title: reason for title, reason in told if reason is not None}
    able = [check for check, reason in zip(every, reasons, strict=True) if reason is None]
    return able, absent


def _cannot_run(check: Check) -> str | None:
    """Why the check can't run here. One whose spec can't say is kept, and told of in its turn."""
    try:
        return check.spec.cannot_run()
    except InvalidArgument:
        return None


def checks_in(file: str) -> set[str]:
    """The variables of an imported file that hold checks."""
    modules = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == file]
    named = [item for module in modules for item in list(vars(module).items())]
    return {variable for variable, value in named if issubclass(type(value), Check)}


def heavy_imports(targets: Iterable[str]) -> list[str]:
    """Heavy libraries that the files to be collected mention: ranks load them before they are
    forked, while the driver still imports the files."""
    heavy = {
        "transformers": "transformers.models.llama.modeling_llama",
        "megatron": "megatron.core.models.gpt.gpt_model",
    }
    found = set()
    files: list[Path] = []
    for target in targets:
        path = Path(target.partition("::")[0] or os.devnull)  # "" is refused by `collect`
        with contextlib.suppress(OSError, ValueError):  # `collect` says what is wrong with it
            files = _below(path) if path.is_dir() else [path] if path.is_file() else []
        for file in files:
            try:
                source = file.read_text(errors="replace")
            except OSError:
                continue
            found |= {module for word, module in heavy.items() if word in source}
    return sorted(found)


def modules(paths: Iterable[str]) -> list[ModuleType]:
    """Every Python file at `paths`, imported."""
    return [load(file) for path in paths for file in _files(path)]


def _files(path: str) -> list[Path]:
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


def _select(found: list[ModuleType], path: str, name: str) -> list[Check]:
    checks = [(k, v) for m in found for k, v in list(vars(m).items()) if issubclass(type(v), Check)]
    if name and name not in dict(checks):
        hint = did_you_mean(name, dict(checks))
        raise InvalidArgument(f"{path} has no check {name!r}{hint}")
    return [check.named(check.name or k) for k, check in checks if name in ("", k)]


def load(file: Path) -> ModuleType:
    """Imports a file as a module of its own: under its dotted name where it is in a package
    tree below the working folder, else under its stem."""
    file = file.resolve()
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(file):
            return module
    for folder in (Path.cwd(), file.parent, _root(file)):
        make_importable(folder)
    name, torch_before = "", guard.of_import()
    try:
        with one_process(), own_settings.noted(str(file)):
            name = _module_name(file)  # imports the packages that it is in
            if "." in name:  # as its neighbours will
                module = _required(importlib.import_module(name), file)
            else:
                module = _execute(name, file)
        require_own(file)
        return module
    except InvalidArgument:
        raise
    except BaseException as error:
        let_through(error)
        sys.modules.pop(name, None)
        raise InvalidArgument(f"{file} does not import: {_where(error, file)}") from None
    finally:
        # references run with torch as it is, whatever files have made of it for their candidates
        torch_before.restore(own=packages_beside())


def _required(module: object, file: Path) -> ModuleType:
    """What was imported, which may have put something else in its place."""
    if not isinstance(module, ModuleType):
        given = type(module).__name__
        raise InvalidArgument(f"{file} replaces itself by a {given}, in which no check is found")
    return module


def _execute(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, f"{file} is not a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _module_name(file: Path) -> str:
    """`properties.linear` where an import would find this very file, else a name of its own."""
    for base in {Path.cwd(), _root(file)}:
        parts = file.relative_to(base).with_suffix("").parts if file.is_relative_to(base) else ()
        name = ".".join(parts)
        if parts and all(part.isidentifier() for part in parts) and _finds(name, file):
            return name
    return f"tpcheck_checks_{file.stem}_{hashlib.sha256(os.fsencode(file)).hexdigest()[:8]}"


def _root(file: Path) -> Path:
    """The folder of the outermost package that the file is in."""
    root = file.parent
    while (root / "__init__.py").exists():
        root = root.parent
    return root


def _finds(name: str, file: Path) -> bool:
    """Whether `import name` leads to this file."""
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file


def _where(error: BaseException, file: Path) -> str:
    line = next(
        (f.lineno for f in reversed(traceback.extract_tb(error.__traceback__))
         if f.filename == str(file)),
        getattr(error, "lineno", None),
    )  # fmt: skip
    at = f" (line {line})" if line else ""
    text = next(iter(frames.text_of(error).splitlines()), "")
    return f"{frames.kind_of(error)}: {text}{at}"
