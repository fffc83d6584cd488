"""The corpus: counterexamples on disk, one JSON file each, replayed first next time.

A file is written atomically when its case is found and again when it has shrunk, so that nothing
is lost when a run is killed. No pickle: a check is named by file and variable, a case is JSON. A
file that was edited, or is not ours, is one line, and stops nothing.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpcheck.case import LONGEST_TEXT, Case
from tpcheck.errors import CaseError, InvalidArgument, shown
from tpcheck.protocol import sanitized
from tpcheck.report import as_json, files
from tpcheck.report.visible import in_json
from tpcheck.verdict import Mismatch

FOLDER = ".tpcheck"
_VERSION = 1

#: Bytes of a file, at most: tens of times as many as 64 ranks with their stacks take. A larger one
#: is not a case, and is not read into memory.
LARGEST = 32 * 2**20


@dataclass(frozen=True)
class Saved:
    """One saved counterexample; `id` is the name of its file, `spec` that of the check's spec, or
    None: older files have none."""

    id: str
    check: str
    address: tuple[str, str] | None
    case: Case
    engine: str
    mismatches: list[Mismatch]
    diagnosis: dict[str, Any]
    spec: str | None = None


class Corpus:
    """The counterexamples below one folder (default: `.tpcheck/corpus` of the working folder)."""

    #: Whether others have a part in it (`shared.SharedCorpus`).
    sharing = False

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(FOLDER) / "corpus"
        self._bad: dict[str, str] = {}  # file → what is to be said of it
        self._told: set[str] = set()

    def save(self, entry: Saved) -> Path:
        """Writes one counterexample; a reader sees the old file or the new one, never half. Ctrl-C
        comes after it.

        Raises:
            InvalidArgument: the folder can't be made or written to.
        """
        path = self._path(entry.id)
        if path is None:
            raise InvalidArgument(f"a case can't be called {shown(entry.id)}")
        try:
            self._save(path, entry)
        except KeyboardInterrupt:  # it came before signals were held back
            self._save(path, entry)
            raise
        return path

    def _save(self, path: Path, entry: Saved) -> None:
        with files.uninterrupted():
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                files.replace(path, json.dumps(in_json(_written(entry)), indent=1))
            except OSError as error:
                reason = error.strerror
                raise InvalidArgument(f"can't keep cases in {self.folder}: {reason}") from None

    def remove(self, identity: str) -> None:
        """Forgets a counterexample (a larger one that shrank to another). Where the folder can
        only be read it stays, and is replayed again."""
        if (path := self._path(identity)) is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def pull(self, check: str, address: tuple[str, str] | None) -> list[Saved]:
        """What others have found of a check, which is in the folder from now on: of this corpus,
        nothing."""
        return []

    def sweep(self) -> None:
        """Removes what runs that were killed while they saved have left."""
        files.sweep(self.folder)

    def of(self, check: str, address: tuple[str, str] | None) -> list[Saved]:
        """The readable counterexamples of one check: of this place or, where one of both has none,
        of this name."""
        here = (portable(address[0]), address[1]) if address else None
        return [
            entry
            for entry in self._readable()
            if (here == entry.address if here and entry.address else check == entry.check)
        ]

    def orphans(self, file: str, variables: Collection[str]) -> list[Saved]:
        """The readable counterexamples of checks that the file no longer has."""
        place = portable(file)
        return [
            entry
            for entry in self._readable()
            if entry.address and entry.address[0] == place and entry.address[1] not in variables
        ]

    def identity(self, check: str, address: tuple[str, str] | None, case: Case) -> str:
        """What a case is called: by its check's name, unless a check of the same name elsewhere has
        the same case saved."""
        plain = case.id(check)
        here = (portable(address[0]), address[1]) if address else None
        with contextlib.suppress(CaseError):
            there = read(self.folder / f"{plain}.json").address
            if here and there and here != there:
                return case.id("::".join([*here, check]))
        return plain

    def aside(self, identity: str, reason: str) -> str:
        """The line that says why a case is not replayed; its file stays."""
        return f"set aside: {self.folder / identity}.json: {reason}"

    def set_aside(self, identity: str, reason: str) -> None:
        """Notes that a case is not replayed."""
        self.complain(f"{identity}.json", self.aside(identity, reason))

    def complain(self, of: str, line: str) -> None:
        """Notes what is to be said of something, once."""
        self._bad.setdefault(of, line)

    def complaints(self) -> list[str]:
        """What is to be said since this was asked last: a line for each bad file."""
        fresh = [name for name in self._bad if name not in self._told]
        self._told |= set(fresh)
        return [self._bad[name] for name in fresh]

    def _readable(self) -> Iterator[Saved]:
        for path in self._paths():
            try:
                yield read(path)
            except CaseError as error:
                self.complain(path.name, f"set aside: {error}")

    def _paths(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return sorted(self.folder.glob("*.json"))
        return []

    def _path(self, identity: str) -> Path | None:
        """The file of a case; None for what would not be one in the folder itself."""
        name = f"{identity}.json"
        return self.folder / name if name == Path(name).name and "\0" not in name else None

    def find(self, id_or_file: str) -> Saved:
        """The counterexample of this id (a prefix will do) or in this file.

        Raises:
            CaseError: there is none, more than one, or it is corrupt.
        """
        path = Path(id_or_file)
        if _names_a_file(id_or_file):
            if not is_file(path):
                raise CaseError(f"no such case file: {id_or_file}")
            return read(path)
        hits = [p for p in self._paths() if p.stem.startswith(id_or_file)]
        if len(hits) != 1:
            there = ", ".join(p.stem for p in self._paths()) or "none"
            what = (
                "more than one saved case starts" if hits else "no saved case is called or starts"
            )
            raise CaseError(f"{what} with {id_or_file!r} in {self.folder} (there are: {there})")
        return read(hits[0])

    def command(self, id_or_file: str, *, check: str | None = None, trust: bool = False) -> str:
        """What to paste in the working folder to replay a case. Arguments as of `replay`."""
        words = [*sanitized.words(), "tpcheck", "replay", id_or_file, *["--trust"] * trust]
        usual = self.folder.resolve() == Corpus().folder.resolve()
        if not (usual or _names_a_file(id_or_file)):
            words += ["--corpus", str(self.folder)]
        return shlex.join([*words, "--check", check] if check else words)


def _written(entry: Saved) -> dict[str, Any]:
    return {
        "schema_version": _VERSION,
        "id": entry.id,
        "check": entry.check,
        "spec": entry.spec,
        "address": [portable(entry.address[0]), entry.address[1]] if entry.address else None,
        "engine": entry.engine,
        "case": entry.case.to_dict(),
        "mismatches": [as_json.mismatch(m) for m in entry.mismatches],
        "diagnosis": entry.diagnosis,
    }


def read(path: Path) -> Saved:
    """Reads one file, whose name is the case's id; `CaseError` names the file and what is wrong
    with it. Nothing in it is trusted."""
    try:
        return parsed(path.stem, files.read(path, LARGEST))
    except _Report:
        raise CaseError(
            f"{path} is a report, not a saved case: give the `id` of a counterexample in it"
        ) from None
    except (OSError, ValueError) as error:
        raise CaseError(f"corrupt case file {path}: {' '.join(str(error).split())}") from None


def parsed(identity: str, text: str | bytes) -> Saved:
    """A case as it is written; `CaseError` says what is wrong with it. Nothing in it is trusted."""
    try:
        return _saved(identity, json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, CaseError):
            raise
        raise CaseError(f"missing {error}" if isinstance(error, KeyError) else str(error)) from None


class _Report(CaseError):
    """What was read is a report of `verify`."""

    def __init__(self) -> None:
        super().__init__("a report, not a saved case")


def _saved(identity: str, given: Any) -> Saved:
    if not isinstance(given, dict):
        raise CaseError(f"a saved case is a JSON object, not {type(given).__name__}")
    if "checks" in given:
        raise _Report
    if given["schema_version"] != _VERSION:
        version = shown(given["schema_version"])
        raise CaseError(f"schema_version {version}, this tpcheck reads {_VERSION}")
    mismatches, diagnosis, spec = given["mismatches"], given["diagnosis"], given.get("spec")
    if not isinstance(mismatches, list) or not isinstance(diagnosis, dict):
        raise CaseError("mismatches is not a list, or diagnosis is not an object")
    return Saved(
        id=identity,
        check=_text("check", given["check"]),
        address=_address(given["address"]),
        case=Case.from_dict(given["case"]),
        engine=_text("engine", given["engine"]),
        mismatches=[as_json.mismatch_from(m) for m in mismatches],
        diagnosis=diagnosis,
        spec=None if spec is None else _text("spec", spec),
    )


def _text(field: str, value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_TEXT:
        raise CaseError(f"{field} is {shown(value)}, not a text of 1 to {LONGEST_TEXT} characters")
    return value


def _address(value: object) -> tuple[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise CaseError(f"address is {shown(value)}, not [file, variable], nor null")
    return _text("the file of address", value[0]), _text("the variable of address", value[1])


def _names_a_file(id_or_file: str) -> bool:
    path = Path(id_or_file)
    return path.suffix == ".json" or len(path.parts) > 1 or not id_or_file.isalnum()


def is_file(path: Path) -> bool:
    """Whether it is a regular file, whatever is given for a path."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long a name, a NUL byte
        return False


def portable(file: str) -> str:
    """A path below the working folder is kept relative, so that the corpus can be shared."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def is_outside(file: str) -> bool:
    """Whether a file of code is outside the working folder, links followed."""
    try:
        return not Path(file).resolve().is_relative_to(Path.cwd().resolve())
    except (OSError, ValueError, RuntimeError):  # a loop of links, a NUL byte
        return True
