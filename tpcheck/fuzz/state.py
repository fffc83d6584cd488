"""What is known of each check, on disk: one JSON line per turn, appended when the turn has ended,
so that a run that is killed at any moment goes on from its last turn. A finding is in the corpus
before that. One run at a time has the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tpcheck.errors import InvalidArgument
from tpcheck.figures.hunted import Finding
from tpcheck.fuzz.features import is_seen
from tpcheck.report import files
from tpcheck.report.visible import in_json
from tpcheck.search.corpus import FOLDER
from tpcheck.search.reach import Reach

PLACE = Path(FOLDER) / "fuzz"
_VERSION = 1

#: Bytes of the file, at most: weeks of turns. A larger one is not read into memory.
LARGEST = 2**30

#: Turns after which the lines are put together to one per check. With fewer, time goes to writing;
#: with more, to reading when a run goes on.
TOGETHER = 2000


@dataclass(frozen=True)
class Unsettled:
    """Why a check is UNKNOWN, whatever else of it agrees; and of which case, if of one."""

    reason: str
    case: Mapping[str, Any] | None = None


@dataclass
class Known:
    """Of one check.

    Args:
        words: feature → how many cases showed it, and the number of the last that did.
        worst: the largest error over its bound among values that agree.
        findings: in the order in which they were found.
        reach: what all of its cases got to.
        open: what more cases do not settle.
    """

    turns: int = 0
    cases: int = 0
    seconds: float = 0.0
    words: dict[str, tuple[int, int]] = field(default_factory=dict)
    worst: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    reach: Reach = field(default_factory=Reach)
    open: Unsettled | None = None

    @property
    def lone(self) -> int:
        """Cases that alone showed some feature: as often as one of so many did, the next will."""
        return len({case for count, case in self.words.values() if count == 1})

    @property
    def seen(self) -> dict[str, int]:
        """The words of what was seen in runs → how many cases showed each."""
        return {word: count for word, (count, _) in self.words.items() if is_seen(word)}

    def add(self, turns: int, shown: Iterable[Iterable[str]], seconds: float, worst: float) -> int:
        """Cases have run, each of which showed these words; how many of them showed a new one."""
        news = 0
        for words in shown:
            self.cases += 1
            news += any(word not in self.words for word in words)
            for word in words:
                count, _ = self.words.get(word, (0, 0))
                self.words[word] = (count + 1, self.cases)
        self.turns, self.seconds = self.turns + turns, self.seconds + seconds
        self.worst = max(self.worst, worst)
        return news

    def put(self, finding: Finding, *, instead_of: Finding | None = None) -> None:
        """A finding is known, in the place of another version of it, if there is one."""
        if instead_of in self.findings:
            self.findings[self.findings.index(instead_of)] = finding
        else:
            self.findings.append(finding)

    def told(self) -> frozenset[str]:
        """The signatures of all findings."""
        return frozenset(word for finding in self.findings for word in finding.signatures)

    def to_dict(self) -> dict[str, Any]:
        return {
            "turns": self.turns,
            "cases": self.cases,
            "seconds": round(self.seconds, 3),
            "words": self.words,
            "worst": self.worst,
            "findings": [finding.to_dict() for finding in self.findings],
            "reach": self.reach.to_dict(),
            "open": self.open and asdict(self.open),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Known:
        """The inverse; raises `TypeError`, `KeyError` or `ValueError` where it is none."""
        words = {
            str(word): (int(count), int(case)) for word, (count, case) in data["words"].items()
        }
        found = [Finding.from_dict(finding) for finding in data["findings"]]
        turns, cases = int(data["turns"]), int(data["cases"])
        known = cls(turns, cases, float(data["seconds"]), words, float(data["worst"]), found)
        return known.take(data)

    def take(self, data: Mapping[str, Any]) -> Known:
        """What more was reached, and what is open now; states of earlier versions have neither."""
        if "reach" in data:
            self.reach = self.reach.after(Reach.from_dict(data["reach"]))
        self.open = Unsettled(**data["open"]) if data.get("open") else None
        return self


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
        self._lines = 0
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
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidArgument(
                f"{self.path} is not a state of tpcheck fuzz ({error}): give --fresh to begin anew"
            ) from None

    def _take(self, line: dict[str, Any]) -> None:
        """All that is known of a check, or what one turn came to."""
        if "known" in line:
            self.checks[line["check"]] = Known.from_dict(line["known"])
            return
        known = self.of(line["check"])
        known.add(line["turns"], line["shown"], line["seconds"], line["worst"])
        known.take(line)
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
    ) -> int:
        """A turn of a check has ended, and its findings and what is open are as they are now: on
        disk at once.

        Args:
            shown: the words of each case that ran.
            reach: what these got to.

        Returns:
            how many of the cases showed a new word.
        """
        known = self.of(check)
        news = known.add(turns, shown, seconds, worst)
        reach = reach or Reach()
        known.reach = known.reach.after(reach)
        line: dict[str, Any] = {"check": check, "turns": turns, "seconds": round(seconds, 3)}
        line |= {"worst": worst, "shown": [sorted(words) for words in shown]}
        line["findings"] = [finding.to_dict() for finding in known.findings]
        line |= {"reach": reach.to_dict(), "open": known.open and asdict(known.open)}
        self._append(line)
        return news

    def _append(self, line: dict[str, Any]) -> None:
        if self._lines >= TOGETHER:
            self._together()  # with what this line says
            return
        try:
            with files.uninterrupted(), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(in_json(line)) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InvalidArgument(f"can't write {self.path}: {error.strerror}") from None
        self._lines += 1

    def _together(self) -> None:
        """One line per check."""
        lines: list[dict[str, Any]] = [{"schema_version": _VERSION}]
        lines += [{"check": name, "known": known.to_dict()} for name, known in self.checks.items()]
        files.replace(self.path, "".join(json.dumps(in_json(line)) + "\n" for line in lines))
        self._lines = 0

    def close(self) -> None:
        """Another run may have the folder."""
        os.close(self._lock)
