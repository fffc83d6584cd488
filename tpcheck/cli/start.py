"""What `tpcheck init` is given on the command line, and the file that it writes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from tpcheck.cli.target import resolve
from tpcheck.errors import InvalidArgument
from tpcheck.first.factory import CONFIG, UNTOLD, Factory, factory
from tpcheck.first.released import is_of_transformers, of_transformers
from tpcheck.first.written import Planned, Written, of_candidate, of_plan, of_untold


def write(
    target: str,
    plan: str | None,
    reference: str | None,
    inputs: Sequence[str],
    out: Path | None,
) -> tuple[Path, tuple[str, ...]]:
    """Writes the file; returns it, and what a reader should know.

    Raises:
        InvalidArgument: it is there already, or what is named can't be used.
    """
    own = factory(target, *_found(target))
    file = out or Path(f"check_{own.name.replace('.', '_').lower()}.py")
    if file.suffix != ".py":
        raise InvalidArgument(f"--out {file} is not a Python file: give a name that ends in .py")
    _require_free(file)
    written = _written(own, plan, reference, inputs)
    try:
        with file.open("x", encoding="utf-8") as there:
            there.write(written.text)
    except FileExistsError:
        _require_free(file)
    except OSError as error:
        raise InvalidArgument(f"can't write {file}: {error.strerror}") from None
    return file, written.notes


def _require_free(file: Path) -> None:
    if file.exists() or file.is_symlink():
        raise InvalidArgument(f"{file} is there already: move it away, or give another --out FILE")


def _written(
    own: Factory, plan: str | None, reference: str | None, inputs: Sequence[str]
) -> Written:
    if plan is not None:
        own = own.alone()
    if own.takes and plan is not None:
        raise InvalidArgument(
            f"--plan is for a module that is whole, and {own.target} takes a {own.takes}: leave "
            "one of them out"
        )
    if own.takes not in ("", CONFIG):
        return (of_untold if own.takes == UNTOLD else of_candidate)(
            own, _reference(own, reference), inputs
        )
    if reference is not None:
        raise InvalidArgument(
            f"--reference is for a factory that takes a mesh or a process group, and {own.target} "
            "takes none: it is the reference"
        )
    if plan is not None:
        return of_plan(own, _planned(plan), inputs)
    made = own.value.config_class() if own.takes == CONFIG else own()
    if is_of_transformers(made):
        if inputs:
            raise InvalidArgument("--input: a transformers model takes token ids; leave it out")
        return of_transformers(own, made)
    what = "a module that is whole" if isinstance(made, nn.Module) else f"a {type(made).__name__}"
    raise InvalidArgument(
        f"{own.target} makes {what}, and nothing says how it is sharded: give --plan MODULE:NAME, "
        "or name a factory that takes a mesh or a process group"
    )


def _reference(own: Factory, reference: str | None) -> Factory | None:
    """What is named, or the factory itself where it makes the whole module without its argument."""
    if reference is not None:
        whole = factory(reference, *_found(reference)).alone()
        if whole.takes:
            raise InvalidArgument(
                f"--reference {reference} takes a {whole.takes}: give one without"
            )
        return whole
    if own.optional:
        with contextlib.suppress(InvalidArgument):  # it needs ranks, without it, too
            own.alone()()
            return own.alone()
    return None


def _planned(target: str) -> Planned:
    module, value = _found(target)
    return Planned(module=module, name=target.rpartition(":")[2], value=value)


def _found(target: str) -> tuple[str, Any]:
    """The module that a file imports it from, and the thing itself."""
    value = resolve(target)
    module = target.rpartition(":")[0]
    if module.endswith(".py"):
        file = str(Path(module).resolve())
        names = [n for n, m in list(sys.modules.items()) if getattr(m, "__file__", None) == file]
        module = names[0]
    return module, value
