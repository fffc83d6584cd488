"""A corpus that machines share through a database of Hypothesis's: what one saves another runs."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis.database import GitHubArtifactDatabase
from hypothesis.errors import HypothesisWarning

from tests.unit.search.test_corpus import ENTRY
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.search.corpus import Saved
from tpcheck.search.shared import SharedCorpus, checked, opened

HERE = ("model.py", "row")


def entry(number: int, *, check: str = "row", address: tuple[str, str] | None = HERE) -> Saved:
    case = Case(dims={"n": 4}, seed=number)
    return replace(ENTRY, id=case.id(check), check=check, address=address, case=case)


def cases(corpus: SharedCorpus) -> set[int]:
    return {saved.case.seed for saved in corpus.of("row", HERE)}


def test_what_one_machine_saves_another_has(tmp_path: Path) -> None:
    one, two = (SharedCorpus(tmp_path / name, str(tmp_path / "db")) for name in ("one", "two"))
    one.save(entry(1))
    one.save(entry(2, check="other", address=None))
    assert [saved.id for saved in two.pull("row", HERE)] == [entry(1).id]
    assert cases(two) == {1} and two.find(entry(1).id).mismatches[0].same_as(ENTRY.mismatches[0])
    assert two.pull("row", HERE) == [], "it is there now"
    assert [saved.case.seed for saved in two.pull("other", None)] == [2]
    assert one.complaints() == two.complaints() == []


def test_what_is_forgotten_is_forgotten_for_all_that_do_not_have_it(tmp_path: Path) -> None:
    one, two, three = (
        SharedCorpus(tmp_path / name, str(tmp_path / "db")) for name in ("one", "two", "three")
    )
    one.save(entry(1))
    one.save(entry(2))
    two.pull("row", HERE)
    two.remove(entry(1).id)
    three.pull("row", HERE)
    assert (cases(one), cases(two), cases(three)) == ({1, 2}, {2}, {2})


def test_nothing_that_comes_out_is_trusted(tmp_path: Path) -> None:
    corpus = SharedCorpus(tmp_path / "corpus", str(tmp_path / "db"))
    other = SharedCorpus(tmp_path / "other", str(tmp_path / "db"))
    key = b'["tpcheck 1", "model.py", "row"]'
    for value in (b"{", b"[]", b'{"checks": []}', b'{"schema_version": 1}', b"\xff"):
        other.database.save(key, value)
    path = other.save(entry(7, address=("/etc/elsewhere.py", "row")))
    other.database.save(key, path.read_bytes())  # of another check
    other.save(entry(1))
    assert [saved.case.seed for saved in corpus.pull("row", HERE)] == [1]
    (line,) = corpus.complaints()
    assert line.startswith(f"left out: of {tmp_path / 'db'}: ")


def _save(folder: Path, first: int) -> None:
    corpus = SharedCorpus(folder / str(first), str(folder / "db"))
    for number in range(first, first + 20):
        corpus.save(entry(number))


def test_two_processes_share_one_folder_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_save, args=(tmp_path, first)) for first in (0, 100)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    for name in ("0", "100", "late"):
        corpus = SharedCorpus(tmp_path / name, str(tmp_path / "db"))
        corpus.pull("row", HERE)
        assert cases(corpus) == {*range(20), *range(100, 120)}


def test_a_database_that_is_gone_costs_no_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = SharedCorpus(tmp_path / "corpus", str(tmp_path / "db"))

    def gone(*_: object) -> None:
        raise ConnectionError("Connection\nrefused")

    for name in ("save", "fetch", "delete"):
        monkeypatch.setattr(corpus.database, name, gone)
    corpus.save(entry(1))
    assert corpus.pull("row", HERE) == [] and cases(corpus) == {1}
    corpus.remove(entry(1).id)
    assert cases(corpus) == set()
    place = tmp_path / "db"
    assert corpus.complaints() == [f"not shared: {place} can't be reached: Connection refused"]


# ---- Redis


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server of Redis's in this process."""
    redis, fakeredis = pytest.importorskip("redis"), pytest.importorskip("fakeredis")
    server = fakeredis.FakeServer()

    def from_url(url: str, **_: object) -> Any:
        return fakeredis.FakeRedis(server=server)

    monkeypatch.setattr(redis.Redis, "from_url", from_url)
    return server


def test_machines_share_a_redis(server: Any, tmp_path: Path) -> None:
    one, two = (SharedCorpus(tmp_path / name, "redis://host:6379/0") for name in ("one", "two"))
    one.save(entry(1))
    one.save(entry(2))
    assert {saved.case.seed for saved in two.pull("row", HERE)} == {1, 2}
    two.remove(entry(1).id)
    three = SharedCorpus(tmp_path / "three", "redis://host")
    assert [saved.case.seed for saved in three.pull("row", HERE)] == [2]


def test_a_redis_that_is_gone_is_a_line_without_its_password(server: Any, tmp_path: Path) -> None:
    place = "redis://user:secret@host:6379/0"
    corpus = SharedCorpus(tmp_path / "corpus", place)
    server.connected = False
    corpus.save(entry(1))
    (line,) = corpus.complaints()
    assert line.startswith("not shared: redis://host:6379/0 can't be reached: ")
    with pytest.raises(InvalidArgument) as caught:
        SharedCorpus(tmp_path / "other", place)
    assert "redis://host:6379/0 can't be reached" in str(caught.value)
    assert "secret" not in str(caught.value) + line


def test_without_its_package_redis_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(InvalidArgument, match=r'needs the package redis: pip install "tpcheck'):
        opened("redis://u:secret@host")


# ---- GitHub


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What Hypothesis's database warns of when it looks for its artifact."""
    said: list[str] = []

    def looked_for(database: GitHubArtifactDatabase) -> None:
        for text in said:
            warnings.warn(text, HypothesisWarning, stacklevel=2)
        database._disabled = True

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(GitHubArtifactDatabase, "_initialize_db", looked_for)
    monkeypatch.setenv("GITHUB_TOKEN", "t")
    return said


def test_an_artifact_that_never_was_is_an_empty_database(github: list[str]) -> None:
    github += ["Couldn't acquire a new or existing artifact. Disabling database."]
    corpus = SharedCorpus(Path("corpus"), "github://owner/repo")
    corpus.save(entry(1))  # read-only: it is in the folder alone
    assert corpus.pull("row", HERE) == [] and cases(corpus) == {1} and not corpus.complaints()


def test_an_artifact_that_can_not_be_had_is_a_line(github: list[str]) -> None:
    github += ["Authorization failed. ", "Couldn't acquire a new or existing artifact."]
    with pytest.raises(InvalidArgument, match=r"^the database github://o/r/a can't be reached: Au"):
        opened("github://o/r/a")


def test_github_is_asked_with_a_token_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    with pytest.raises(InvalidArgument, match="in GITHUB_TOKEN"):
        opened("github://owner/repo")


# ---- places


@pytest.mark.parametrize(
    "place", ["", "http://host", "github://owner", "github://o/r/a/b", "github://o//", "redis://"]
)
def test_a_place_that_is_none_is_refused_in_a_line(place: str) -> None:
    with pytest.raises(InvalidArgument, match=r"is not a folder, redis://.* or github://OWNER"):
        checked(place)


def test_a_folder_that_can_not_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match=r"can't be reached: .*exists"):
        opened(str(tmp_path / "file"))
