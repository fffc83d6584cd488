"""Keys that `parallelize_module` skips, since they match no module: it warns, and goes on."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from tpcheck.figures.plan import Finding
from tpcheck.figures.plan_causes import IgnoredKey
from tpcheck.plan.match import Tree, candidates, match
from tpcheck.vocabulary import Code

#: What it says: the key, and the part of it for which there is no child.
_SAID = re.compile(
    r"plan key '([^']*)' could not be resolved(?:: no submodule matching token '(\S*)')?"
)


def _skipped(said: Any) -> re.Match[str] | None:
    """torch tells of a key in a warning, and nowhere else."""
    return _SAID.search(str(said))


@contextlib.contextmanager
def ignored() -> Iterator[dict[str, str]]:
    """Gathers the keys that are skipped in it, each with that part. Other warnings go their way."""
    keys: dict[str, str] = {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield keys
    for warning in said:
        if found := _skipped(warning.message):
            keys[found[1]] = found[2] or found[1].rpartition(".")[2]
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def print_them() -> None:
    """From here on each key that is skipped is a line on stderr, for the page of a failure."""
    warnings.filterwarnings("always", message="Parallelize plan key")
    usual = warnings.showwarning

    def show(message: Any, *where: Any, **more: Any) -> None:
        if found := _skipped(message):
            line = f"parallelize_module skips the plan's key {found[1]!r}: it matches no module"
            print(line, file=sys.stderr)
        else:
            usual(message, *where, **more)

    warnings.showwarning = show


def findings(tree: Tree, keys: Mapping[str, str]) -> Iterator[Finding]:
    """Each of these keys, with what it could have meant in a model."""
    for key, part in keys.items():
        near = candidates(tree, match(tree, key, parameters=False))
        yield Finding(Code.PLAN_ENTRY_UNMATCHED, IgnoredKey(part), (key,), key, near)
