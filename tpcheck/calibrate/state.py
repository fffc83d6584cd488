"""A campaign's state on disk, so that a later run goes on where an earlier one stopped."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tpcheck.errors import InvalidArgument, shown
from tpcheck.figures.alarms import Unit
from tpcheck.report import files

STATE = Path(".tpcheck") / "campaign.jsonl"
_VERSION = 1

#: Bytes of a state file, at most: a campaign of a hundred million cases. A larger one is not one.
LARGEST = 2**30

#: Folders of tpcheck that decide where a bound is: figures taken before and after a change there
#: don't mix. One that is missing here lets them mix; one too many ends campaigns for nothing.
_BOUNDS = ("tensors", "bounds", "oracle", "runner", "ranks")


@dataclass(frozen=True)
class Grid:
    """What a campaign draws from; a state file belongs to one grid.

    Args:
        degrees, dtypes: what cases may have.
        seed: of all draws.
    """

    degrees: tuple[int, ...] = (1, 2, 3, 4, 8)
    dtypes: tuple[str, ...] = ("float64", "float32", "bfloat16", "float16")
    seed: int = 0


class State:
    """The units that are done, on disk: one JSON line each, after a line that says the grid.

    Raises:
        InvalidArgument: the file belongs to another grid or to other bounds, or is not such a file.
    """

    def __init__(self, path: Path, grid: Grid) -> None:
        self.path, self.grid = path, grid
        self.units: dict[tuple[str, int, str, int], Unit] = {}
        here = {"schema_version": _VERSION, **asdict(grid), "bounds": digest_of_bounds()}
        here = json.loads(json.dumps(here))
        try:
            there = os.path.lexists(path)
        except ValueError as error:  # a NUL byte
            raise InvalidArgument(f"can't write {shown(str(path))}: {error}") from None
        if there:
            self._read(here)
        else:
            self._append(here)

    def _read(self, here: dict[str, Any]) -> None:
        """Takes over what is there; a last line that was cut short is cut off."""
        try:
            head, *lines = files.read(self.path, LARGEST).split("\n")
            there = json.loads(head)
            units = [Unit(**json.loads(line)) for line in lines[:-1]]
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise InvalidArgument(f"{self.path} is not a campaign state file: {error}") from None
        changed = [k for k in here if not isinstance(there, dict) or there.get(k) != here[k]]
        if changed:
            raise InvalidArgument(
                f"{self.path} holds a campaign with other {', '.join(changed)}; give --state "
                "another file, or remove it"
            )
        self.units = {unit.key: unit for unit in units}
        if lines and lines[-1]:
            self.path.write_text("\n".join([head, *lines[:-1], ""]), encoding="utf-8")

    def add(self, unit: Unit) -> None:
        """Keeps a unit, on disk at once."""
        self.units[unit.key] = unit
        self._append(asdict(unit))

    def _append(self, line: dict[str, Any]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise InvalidArgument(f"can't write {self.path}: {error.strerror}") from None


def digest_of_bounds() -> str:
    """A digest of the code that derives bounds."""
    package = Path(__file__).parent.parent
    files = sorted(file for name in _BOUNDS for file in (package / name).glob("*.py"))
    code = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(code).hexdigest()[:12]
