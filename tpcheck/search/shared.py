"""A corpus that several machines share, through a database of Hypothesis's: what one finds the
others run first.

Hypothesis has databases in a folder, in Redis, and in an artifact of GitHub Actions. Here their
values are saved cases, as the corpus writes them, under a key of their check. What comes out of
one is trusted no more than a file of the corpus; and where it can't be reached any more, that is a
line, and the run goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tpcheck.errors import CaseError, InvalidArgument, shown
from tpcheck.search.corpus import FOLDER, LARGEST, Corpus, Saved, parsed, portable, read

if TYPE_CHECKING:
    from hypothesis.database import ExampleDatabase

    from tpcheck.case import Case

#: Seconds until a server that does not answer counts as gone. With fewer, one far away is; with
#: more, a run waits for it.
PATIENCE = 10
#: How long an artifact of GitHub's is taken for the newest. Hypothesis's own day is longer than a
#: machine that keeps its files from run to run waits for what the night has found.
ARTIFACT = timedelta(hours=1)
#: The name of the artifact, unless another is given: Hypothesis's own.
NAME = "hypothesis-example-db"

_REDIS = ("redis", "rediss", "unix")


class SharedCorpus(Corpus):
    """The corpus of one folder, and beside it what other machines have found.

    Args:
        place: of the database, as `opened` takes it.

    Raises:
        InvalidArgument: it can't be opened.
    """

    sharing = True

    def __init__(self, folder: Path | None, place: str) -> None:
        super().__init__(folder)
        self.place = _without_password(place)
        self.database = opened(place)

    def save(self, entry: Saved) -> Path:
        path = super().save(entry)
        with self._reaching():
            self.database.save(_key(entry.check, entry.address), path.read_bytes())
        return path

    def remove(self, identity: str) -> None:
        """Forgets a counterexample, for the others, too."""
        entry = None
        with contextlib.suppress(CaseError):
            entry = read(self.folder / f"{identity}.json")
        super().remove(identity)
        if entry is None:
            return
        key = _key(entry.check, entry.address)
        with self._reaching():
            for value in list(self.database.fetch(key)):
                with contextlib.suppress(CaseError):
                    if parsed(identity, value).case == entry.case:
                        self.database.delete(key, value)

    def pull(self, check: str, address: tuple[str, str] | None) -> list[Saved]:
        """Puts what others have found of a check into the folder; returns what was not there."""
        values: list[bytes] = []
        with self._reaching():
            values = sorted(self.database.fetch(_key(check, address)))
        new = []
        for value in values:
            try:
                entry = parsed("", value if len(value) <= LARGEST else b"")
            except CaseError as error:
                self.complain(f"{check} in {self.place}", f"left out: of {self.place}: {error}")
                continue
            if _key(entry.check, entry.address) != _key(check, address):
                continue
            entry = replace(entry, id=self.identity(entry.check, entry.address, entry.case))
            if not self._there(entry.case, entry.id):
                super().save(entry)
                new.append(entry)
        return new

    def _there(self, case: Case, identity: str) -> bool:
        with contextlib.suppress(CaseError):
            return read(self.folder / f"{identity}.json").case == case
        return False

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """A database that can't be reached any more costs no case, and no run."""
        try:
            yield
        except Exception as error:
            reason = f"not shared: {self.place} can't be reached: {_line(error)}"
            self.complain(self.place, reason)


def opened(place: str) -> ExampleDatabase:
    """The database at `place`: a folder, `redis://HOST:PORT/N` (or `rediss://`, `unix://`), or
    `github://OWNER/REPO` (or `github://OWNER/REPO/ARTIFACT`), which is only read.

    Raises:
        InvalidArgument: there is no such place, or it can't be reached.
    """
    kind = checked(place)
    try:
        return _OPENED.get(kind, _folder)(place)
    except InvalidArgument:
        raise
    except Exception as error:
        name = _without_password(place)
        raise InvalidArgument(f"the database {name} can't be reached: {_line(error)}") from None


def checked(place: str) -> str:
    """The scheme of a place, `""` of a folder.

    Raises:
        InvalidArgument: it is none that there is.
    """
    scheme, found, rest = place.partition("://")
    if not found and place:
        return ""
    if scheme in _REDIS and rest:
        return scheme
    if scheme == "github" and len(parts := rest.split("/")) in (2, 3) and all(parts):
        return scheme
    raise InvalidArgument(
        f"--database {shown(_without_password(place))} is not a folder, "
        "redis://HOST:PORT/N or github://OWNER/REPO"
    )


def _folder(place: str) -> ExampleDatabase:
    from hypothesis.database import DirectoryBasedExampleDatabase

    Path(place).mkdir(parents=True, exist_ok=True)
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise InvalidArgument(f"can't share cases in {place}: give a writable folder")
    return DirectoryBasedExampleDatabase(place)


def _redis(place: str) -> ExampleDatabase:
    try:
        import redis
        from hypothesis.extra.redis import RedisExampleDatabase
    except ImportError:
        raise InvalidArgument(
            f"--database {_without_password(place)} needs the package redis: "
            'pip install "tpcheck[redis]"'
        ) from None
    server = redis.Redis.from_url(place, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE)
    server.ping()
    return RedisExampleDatabase(server, key_prefix=b"tpcheck:")


def _github(place: str) -> ExampleDatabase:
    from hypothesis.database import GitHubArtifactDatabase, ReadOnlyDatabase
    from hypothesis.errors import HypothesisWarning

    if not os.environ.get("GITHUB_TOKEN"):
        raise InvalidArgument(
            f"--database {place} needs a token that may read the repository's artifacts, in "
            "GITHUB_TOKEN"
        )
    owner, repository, *named = place.partition("://")[2].split("/")
    name = named[0] if named else NAME
    database = GitHubArtifactDatabase(
        owner,
        repository,
        artifact_name=name,
        cache_timeout=ARTIFACT,
        path=Path(FOLDER) / "github" / owner / repository / name,
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", HypothesisWarning)
        list(database.fetch(b""))  # what downloads it
    told = [str(one.message) for one in said if issubclass(one.category, HypothesisWarning)]
    if len(told) > 1:  # why, and that there is none; where there never was one, that alone
        raise InvalidArgument(f"the database {place} can't be reached: {told[0].strip()}")
    return ReadOnlyDatabase(database)


_OPENED: dict[str, Callable[[str], ExampleDatabase]] = {
    "": _folder,
    "github": _github,
    **dict.fromkeys(_REDIS, _redis),
}


def _key(check: str, address: tuple[str, str] | None) -> bytes:
    """Under which the cases of a check are: its place, as the corpus has it, or its name."""
    place = [portable(address[0]), address[1]] if address else [check]
    return json.dumps(["tpcheck 1", *place]).encode()


def _without_password(place: str) -> str:
    if "@" not in place:
        return place
    with contextlib.suppress(ValueError):
        parts = urlsplit(place)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return place.partition("://")[0] + "://…"


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
