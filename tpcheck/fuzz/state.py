"""What is known of each check, on disk: one JSON line per turn, appended when the turn has ended,
so that a run that is killed at any moment goes on from its last turn. A finding is in the corpus
before that. One run at a time has the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tpcheck.errors import InvalidArgument
from tpcheck.figures.hunted import Finding
from tpcheck.fuzz.known import Known, amount, open_from_list, open_to_list
from tpcheck.report import files
from tpcheck.report.visible import in_json
from tpcheck.search.corpus import FOLDER
from tpcheck.search.reach import Reach

PLACE = Path(FOLDER) / "fuzz"
_VERSION = 2

#: Bytes of the file, at most: weeks of turns. A larger one is not read into memory.
LARGEST = 2**30

#: Turns after which the lines are put together to one per check. With fewer, time goes to writing;
#: with more, to reading when a run goes on.
TOGETHER = 2000
#: The same in bytes. With more, the file of checks of thousands of tensors is too large to be read.
MUCH = 2**27

#: What raises where a line was not written by a run.
_GARBLED = (
    ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError
)  # fmt: skip


class State:
    """Of all checks, below one folder.

    Args:
        fresh: forget what is there.

    Raises:
        InvalidArgument: another run has the folder, it can't be written to, or what is there was
            not written by a run of `fuzz`.
    """

    def __init__(self, folder: Path = PLACE, *, fresh: bool = False) -> None:
        self.folder, self.path = folder, folder / "state.jsonl"
        self.checks: dict[str, Known] = {}
        self._lines = self._bytes = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._own()
            if fresh:
                self.path.unlink(missing_ok=True)
                shutil.rmtree(self.choices, ignore_errors=True)
            files.sweep(folder)
            if self.path.exists():
                self._read()
            self._together()
        except OSError as error:
            raise InvalidArgument(f"can't write {folder}: {error.strerror}") from None

    @property
    def choices(self) -> Path:
        """Where the choices of cases are."""
        return self.folder / "choices"

    def of(self, check: str) -> Known:
        """What is known of a check."""
        return self.checks.setdefault(check, Known())

    def _own(self) -> None:
        try:
            # of this process alone: workers, which are forked from it, do not have it
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(self._lock)
            raise InvalidArgument(
                f"another tpcheck fuzz runs with {self.folder}: end it, or give --state another "
                "folder"
            ) from None

    def _read(self) -> None:
        """Takes over what is there; a last line that was cut short is left out."""
        try:
            head, *lines = files.read(self.path, LARGEST).split("\n")
            if json.loads(head)["schema_version"] != _VERSION:
                raise ValueError("another schema_version")
            for line in lines[:-1]:
                self._take(json.loads(line))
        except _GARBLED as error:
            raise InvalidArgument(
                f"{self.path} is not a state of tpcheck fuzz ({error}): give --fresh to begin anew"
            ) from None

    def _take(self, line: dict[str, Any]) -> None:
        """All that is known of a check, or what one turn came to."""
        if "known" in line:
            self.checks[line["check"]] = Known.from_dict(line["known"])
            return
        known = self.of(line["check"])
        turns, seconds, worst = (amount(line[name]) for name in ("turns", "seconds", "worst"))
        known.add(int(turns), line["shown"], seconds, worst)
        if "reach" in line:
            known.got_to(Reach.from_dict(line["reach"]), anew=line["anew"])
        known.open = open_from_list(line["open"])
        if "findings" in line:
            known.findings = [Finding.from_dict(finding) for finding in line["findings"]]

    def add(
        self,
        check: str,
        *,
        shown: Sequence[Iterable[str]] = (),
        seconds: float = 0.0,
        worst: float = 0.0,
        turns: int = 1,
        reach: Reach | None = None,
        anew: bool = False,
    ) -> int:
        """A turn of a check has ended, and its findings and what is open are as they are now: on
        disk at once.

        Args:
            shown: the words of each case that ran.
            reach: what these got to, if they were drawn; `anew`, whether what earlier ones did no
                longer counts.

        Returns:
            how many of the cases showed a new word.
        """
        known = self.of(check)
        news = known.add(turns, shown, seconds, worst)
        line: dict[str, Any] = {"check": check, "turns": turns, "seconds": round(seconds, 3)}
        line |= {"worst": worst, "shown": [sorted(words) for words in shown]}
        line["findings"] = [finding.to_dict() for finding in known.findings]
        line["open"] = open_to_list(known.open)
        if reach is not None:
            known.got_to(reach, anew=anew)
            line |= {"reach": reach.to_dict(), "anew": anew}
        self._append(line)
        return news

    def _append(self, line: dict[str, Any]) -> None:
        text = json.dumps(in_json(line)) + "\n"
        try:
            if self._lines >= TOGETHER or self._bytes >= MUCH:
                self._together()  # with what this line says
                return
            with files.uninterrupted(), self.path.open("a", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InvalidArgument(f"can't write {self.path}: {error.strerror}") from None
        self._lines, self._bytes = self._lines + 1, self._bytes + len(text)

    def _together(self) -> None:
        """One line per check."""
        lines: list[dict[str, Any]] = [{"schema_version": _VERSION}]
        lines += [{"check": name, "known": known.to_dict()} for name, known in self.checks.items()]
        files.replace(self.path, "".join(json.dumps(in_json(line)) + "\n" for line in lines))
        self._lines = self._bytes = 0

    def close(self) -> None:
        """Another run may have the folder."""
        os.close(self._lock)
