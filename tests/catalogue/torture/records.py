"""The state file: a line per round that is done, so that a campaign goes on where it ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.catalogue.torture.judge import Row


class Records:
    """Rows in a file of JSON lines, and beside it the label of the round that is running."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._current = file.with_suffix(".current")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()

    def rows(self) -> list[Row]:
        """Those that are done; a line that was cut off is not."""
        return list(self._read())

    def _read(self) -> Iterator[Row]:
        for line in self.file.read_text().splitlines():
            try:
                yield Row.from_json(json.loads(line))
            except ValueError:
                continue

    def begin(self, label: str) -> None:
        """A round starts."""
        self._current.write_text(label)

    def begun(self) -> str:
        """The label of the round that was started last."""
        return self._current.read_text() if self._current.exists() else ""

    def add(self, row: Row) -> None:
        """A round is done."""
        with self.file.open("a") as file:
            file.write(json.dumps(row.to_json()) + "\n")
        self._current.unlink(missing_ok=True)

    def size(self) -> int:
        """Grows with every row."""
        return self.file.stat().st_size
