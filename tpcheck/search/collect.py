"""Finds `Check` objects in files, as pytest finds tests: by path, by folder, by `FILE::NAME`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from tpcheck.errors import InvalidArgument, did_you_mean
from tpcheck.spec import Check


def collect(targets: Iterable[str]) -> list[Check]:
    """The checks that `targets` name, in order, each with its variable's name.

    Raises:
        InvalidArgument: a target that does not exist, does not import, has no such check, or
            no check at all.
    """
    found: list[Check] = []
    for target in targets:
        path, _, name = target.partition("::")
        chosen = _select([load(file) for file in _files(path)], path, name)
        known = {(check.title, check.address()) for check in found}
        found += [check for check in chosen if (check.title, check.address()) not in known]
    if not found:
        raise InvalidArgument(f"no Check found in {', '.join(targets)}")
    return found


def runnable(checks: Iterable[Check]) -> tuple[list[Check], dict[str, str]]:
    """The checks whose spec can run here, and of each other one, title → why it can't."""
    reasons = [(check, _cannot_run(check)) for check in checks]
    absent = {check.title: reason for check, reason in reasons if reason is not None}
    return [check for check, reason in reasons if reason is None], absent


def _cannot_run(check: Check) -> str | None:
    """Why the check can't run here. One whose spec can't say is kept, and told of in its turn."""
    try:
        return check.spec.cannot_run()
    except InvalidArgument:
        return None


def checks_in(file: str) -> set[str]:
    """The variables of an imported file that hold checks."""
    modules = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == file]
    return {k for module in modules for k, v in vars(module).items() if isinstance(v, Check)}


def heavy_imports(targets: Iterable[str]) -> list[str]:
    """Heavy libraries that the files to be collected mention: ranks load them before they are
    forked, while the driver still imports the files."""
    heavy = {
        "transformers": "transformers.models.llama.modeling_llama",
        "megatron": "megatron.core.models.gpt.gpt_model",
    }
    found = set()
    for target in targets:
        path = Path(target.partition("::")[0] or os.devnull)  # "" is refused by `collect`
        files = list(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
        for file in files:
            source = file.read_text(errors="replace")
            found |= {module for word, module in heavy.items() if word in source}
    return sorted(found)


def modules(paths: Iterable[str]) -> list[ModuleType]:
    """Every Python file at `paths`, imported."""
    return [load(file) for path in paths for file in _files(path)]


def _files(path: str) -> list[Path]:
    if not path:
        raise InvalidArgument("an empty name was given: give a file, a folder or FILE::NAME")
    place = Path(path)
    if place.is_dir():
        hidden = (".", "_")
        files = sorted(
            p
            for p in place.rglob("*.py")
            if not any(part.startswith(hidden) for part in p.relative_to(place).parts)
        )
        if not files:
            raise InvalidArgument(f"the folder {path} has no Python file to collect checks from")
        return files
    if not place.is_file():
        raise InvalidArgument(f"no such file or folder: {path}")
    if place.suffix != ".py":
        raise InvalidArgument(f"{path} is not a Python file: give a .py file or a folder of them")
    return [place]


def _select(found: list[ModuleType], path: str, name: str) -> list[Check]:
    checks = [(k, v) for m in found for k, v in vars(m).items() if isinstance(v, Check)]
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
    for folder in (str(Path.cwd()), str(file.parent)):
        if folder not in sys.path:
            sys.path.append(folder)  # last: a file called like a standard module must not win
    name = _module_name(file)
    try:
        if "." in name:
            return importlib.import_module(name)  # as its neighbours in the package will
        return _execute(name, file)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        sys.modules.pop(name, None)
        raise InvalidArgument(f"{file} does not import: {_where(error, file)}") from None


def _execute(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, f"{file} is not a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _module_name(file: Path) -> str:
    """`properties.linear` where an import would find this very file, else a name of its own."""
    root = file.parent
    while (root / "__init__.py").exists():
        root = root.parent
    for base in {Path.cwd(), root}:
        parts = file.relative_to(base).with_suffix("").parts if file.is_relative_to(base) else ()
        name = ".".join(parts)
        if parts and all(part.isidentifier() for part in parts) and _finds(name, file, base):
            return name
    return f"tpcheck_checks_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"


def _finds(name: str, file: Path, base: Path) -> bool:
    """Whether `import name` leads to this file, with `base` at the end of the path."""
    if str(base) not in sys.path:
        sys.path.append(str(base))
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
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{at}"
