"""Which modules a process has loaded."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

#: What torch imports when the first of its optimizers is made, which takes a second.
OF_OPTIMIZERS = ("torch._dynamo",)

#: How many modules it was forked with. It does not look at those: it would write to each name's
#: count of references, and so copy that memory.
_inherited = 0


def inherit() -> None:
    """What is loaded now is known to be, by who asks for it in the processes forked from here."""
    global _inherited
    _inherited = len(sys.modules)


def parts_of_torch() -> list[str]:
    """Their names, without what is inherited. What a candidate imports of torch, the zygote loads
    once for all ranks to come, where each would take a second for it. Of torch alone: another
    library may replace functions when it is imported, and is loaded where it is asked for."""
    return _parts(_inherited, len(sys.modules))


def modules_since(count: int) -> dict[str, ModuleType]:
    """Those that were loaded since there were so many, by name."""
    return dict(itertools.islice(reversed(sys.modules.items()), max(0, len(sys.modules) - count)))


def package(name: str) -> str:
    """The outermost package of a module."""
    return name.partition(".")[0]


@functools.lru_cache(1)
def _parts(inherited: int, count: int) -> list[str]:
    """Of a process with so many modules, less the first."""
    new = list(itertools.islice(reversed(sys.modules.items()), max(0, count - inherited)))
    loaded = [(name, module) for name, module in new if name.count(".") < 3]
    return [name for name, module in loaded if name[:6] == "torch." and hasattr(module, "__path__")]


def is_installed(file: str) -> bool:
    """Whether it is of Python's library, of a package that was installed, or of tpcheck."""
    return file.startswith(_installed())


@functools.cache
def _installed() -> tuple[str, ...]:
    paths = {sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}
    own = Path(__file__).parent.parent
    return tuple(f"{path}{os.sep}" for path in (*paths, own))
