"""Finds `Mutant` objects in modules."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from tpcheck.mutant import Mutant


def collect(modules: Iterable[ModuleType]) -> list[Mutant]:
    """Every `Mutant` bound, or listed in a tuple, at the top of the modules; once each."""
    found: dict[str, Mutant] = {}
    for module in modules:
        for value in vars(module).values():
            for mutant in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(mutant, Mutant):
                    found.setdefault(mutant.name, mutant)
    return list(found.values())
