"""Where checks are, as the command line takes it, and what they are called where names collide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tpcheck.check import Check


def file_of(check: Check) -> str | None:
    """The file that the check was collected from."""
    found = check.address()
    return None if found is None else found[0]


def address(check: Check) -> str | None:
    """`FILE::NAME`; None where it was not collected."""
    return shown(check.address())


def shown(found: tuple[str, str] | None) -> str | None:
    """The same of file and name: the file relative, where it is below the working folder."""
    if found is None:
        return None
    file, variable = Path(found[0]), found[1]
    below = file.is_relative_to(Path.cwd())
    return f"{file.relative_to(Path.cwd()) if below else file}::{variable}"


def titles(checks: Sequence[Check]) -> list[str]:
    """Their titles, with the address where several have the same one: `good (a.py::good)`."""
    count = Counter(check.title for check in checks)
    where = [address(check) if count[check.title] > 1 else None for check in checks]
    return [f"{c.title} ({at})" if at else c.title for c, at in zip(checks, where, strict=True)]
