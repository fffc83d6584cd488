"""The corpus: counterexamples on disk, one JSON file each, replayed first next time.

A file is written atomically when its case is found and again when it has shrunk, so that nothing
is lost when a run is killed. No pickle: a check is named by file and variable, a case is JSON.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpcheck.case import Case
from tpcheck.errors import CaseError, InvalidArgument
from tpcheck.report import as_json, files
from tpcheck.verdict import Mismatch

FOLDER = ".tpcheck"
_VERSION = 1


@dataclass(frozen=True)
class Saved:
    """One saved counterexample."""

    id: str
    check: str
    address: tuple[str, str] | None
    case: Case
    engine: str
    mismatches: list[Mismatch]
    diagnosis: dict[str, Any]


class Corpus:
    """The counterexamples below one folder (default: `.tpcheck/corpus` of the working folder)."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(FOLDER) / "corpus"

    def save(self, entry: Saved) -> Path:
        """Writes one counterexample; a reader sees the old file or the new one, never half.

        Raises:
            InvalidArgument: the folder can't be made or written to.
        """
        path = self.folder / f"{entry.id}.json"
        written = {
            "schema_version": _VERSION,
            "id": entry.id,
            "check": entry.check,
            "address": [_portable(entry.address[0]), entry.address[1]] if entry.address else None,
            "engine": entry.engine,
            "case": entry.case.to_dict(),
            "mismatches": [as_json.mismatch(m) for m in entry.mismatches],
            "diagnosis": entry.diagnosis,
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            files.replace(path, json.dumps(written, indent=1))
        except OSError as error:
            reason = error.strerror
            raise InvalidArgument(f"can't keep cases in {self.folder}: {reason}") from None
        return path

    def remove(self, identity: str) -> None:
        """Forgets a counterexample (a larger one that shrank to another). Where the folder can
        only be read it stays, and is replayed again."""
        with contextlib.suppress(OSError):
            (self.folder / f"{identity}.json").unlink(missing_ok=True)

    def of(self, check: str, address: tuple[str, str] | None) -> list[Saved]:
        """The readable counterexamples of one check: of this name and, where both have one, of
        this place."""
        here = (_portable(address[0]), address[1]) if address else None
        found = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                entry = read(path)
            except CaseError:
                continue  # `replay` on that file says what is wrong with it
            if entry.check == check and (None in (here, entry.address) or here == entry.address):
                found.append(entry)
        return found

    def find(self, id_or_file: str) -> Saved:
        """The counterexample of this id (a prefix will do) or in this file.

        Raises:
            CaseError: there is none, more than one, or it is corrupt.
        """
        path = Path(id_or_file)
        if _names_a_file(id_or_file):
            if not _is_file(path):
                raise CaseError(f"no such case file: {id_or_file}")
            return read(path)
        hits = [p for p in sorted(self.folder.glob("*.json")) if p.stem.startswith(id_or_file)]
        if len(hits) != 1:
            there = ", ".join(p.stem for p in sorted(self.folder.glob("*.json"))) or "none"
            what = (
                "more than one saved case starts" if hits else "no saved case is called or starts"
            )
            raise CaseError(f"{what} with {id_or_file!r} in {self.folder} (there are: {there})")
        return read(hits[0])

    def command(self, id_or_file: str, *, check: str | None = None) -> str:
        """What to paste in the working folder to replay a case; `check` where that moved."""
        words = ["tpcheck", "replay", id_or_file]
        usual = self.folder.resolve() == Corpus().folder.resolve()
        if not (usual or _names_a_file(id_or_file)):
            words += ["--corpus", str(self.folder)]
        return shlex.join([*words, "--check", check] if check else words)


def read(path: Path) -> Saved:
    """Reads one file; `CaseError` names the file and what is wrong with it."""
    given = _json(path)
    if isinstance(given, dict) and "checks" in given:
        raise CaseError(
            f"{path} is a report, not a saved case: give the `id` of a counterexample in it"
        )
    try:
        if given["schema_version"] != _VERSION:
            raise CaseError(f"schema_version {given['schema_version']!r}, this tpcheck reads 1")
        address = given["address"]
        return Saved(
            id=str(given["id"]),
            check=str(given["check"]),
            address=(str(address[0]), str(address[1])) if address else None,
            case=Case.from_dict(given["case"]),
            engine=str(given["engine"]),
            mismatches=[as_json.mismatch_from(m) for m in given["mismatches"]],
            diagnosis=dict(given["diagnosis"]),
        )
    except CaseError as error:
        raise CaseError(f"corrupt case file {path}: {error}") from None
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        reason = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise CaseError(f"corrupt case file {path}: {reason}") from None


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CaseError(f"corrupt case file {path}: {error}") from None


def _names_a_file(id_or_file: str) -> bool:
    path = Path(id_or_file)
    return path.suffix == ".json" or len(path.parts) > 1 or not id_or_file.isalnum()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long a name, a NUL byte
        return False


def _portable(file: str) -> str:
    """A path below the working folder is kept relative, so that the corpus can be shared."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
