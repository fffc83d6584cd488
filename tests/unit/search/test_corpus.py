"""The corpus: written whole or not at all, found by prefix; a bad file is refused in a line."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tpcheck.case import Case
from tpcheck.errors import CaseError, InvalidArgument
from tpcheck.search.corpus import Corpus, Saved
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

ENTRY = Saved(
    id="7f3a91",
    check="row_linear",
    address=("/elsewhere/linear.py", "row_linear"),
    case=Case(dims={"n": 4, "bias": True}, dtype="bfloat16", seed=9),
    engine="gloo",
    mismatches=[Mismatch("y", Kind.OUTPUT, 1, (0, 2), 1.5, float("nan"), float("inf"), 1e-15)],
    diagnosis={"code": "summed-twice", "message": "twice", "evidence": {"factor": 2.0}},
    spec="row_linear",
)


def test_what_is_saved_is_what_is_found(corpus: Corpus) -> None:
    corpus.save(ENTRY)
    found = corpus.find("7f3a91")
    assert replace(found, mismatches=[]) == replace(ENTRY, mismatches=[])
    assert len(found.mismatches) == 1 and found.mismatches[0].same_as(ENTRY.mismatches[0])


def test_a_saved_file_is_strict_json(corpus: Corpus) -> None:
    def refuse(token: str) -> None:
        raise AssertionError(token)

    data = json.loads(corpus.save(ENTRY).read_text(), parse_constant=refuse)
    assert data["schema_version"] == 1 and data["case"] == ENTRY.case.to_dict()


def test_saving_again_replaces_and_leaves_nothing_else_behind(corpus: Corpus) -> None:
    corpus.save(ENTRY)
    corpus.save(replace(ENTRY, engine="threads"))
    assert [p.name for p in corpus.folder.iterdir()] == ["7f3a91.json"]
    assert corpus.find("7f3a91").engine == "threads"


def test_a_run_killed_while_saving_leaves_the_old_file(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.save(ENTRY)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        corpus.save(replace(ENTRY, engine="threads"))
    assert corpus.find("7f3a91").engine == "gloo"
    assert [saved.engine for saved in corpus.of("row_linear", None)] == ["gloo"]


def test_a_prefix_finds_its_only_match_and_an_ambiguous_one_lists_them(corpus: Corpus) -> None:
    corpus.save(ENTRY)
    corpus.save(replace(ENTRY, id="7f0000"))
    assert corpus.find("7f3").id == "7f3a91"
    with pytest.raises(CaseError, match=r"more than one.*7f0000, 7f3a91"):
        corpus.find("7f")


def test_an_unknown_id_lists_those_there_are(corpus: Corpus) -> None:
    with pytest.raises(CaseError, match="none"):
        corpus.find("abc")
    corpus.save(ENTRY)
    with pytest.raises(CaseError, match=r"'abc'.*7f3a91"):
        corpus.find("abc")


def test_a_file_is_found_by_its_path_whatever_its_name(corpus: Corpus, tmp_path: Path) -> None:
    other = tmp_path / "moved"
    corpus.save(ENTRY).rename(other)
    assert corpus.find(str(other)).case == ENTRY.case
    with pytest.raises(CaseError, match=r"no such case file: .*gone\.json"):
        corpus.find(str(tmp_path / "gone.json"))


@pytest.mark.parametrize("name", ["/tmp/no/such/case", "*", "**", "a" * 5000, "[", "a\0b"])
def test_an_id_that_no_case_can_have_is_refused_in_one_line(corpus: Corpus, name: str) -> None:
    corpus.save(ENTRY)
    with pytest.raises(CaseError) as caught:
        corpus.find(name)
    assert len(str(caught.value).splitlines()) == 1


def test_an_empty_id_names_no_case(corpus: Corpus) -> None:
    corpus.save(ENTRY)
    with pytest.raises(CaseError):
        corpus.find("")


def test_the_command_to_replay_a_case_names_what_is_not_the_default(corpus: Corpus) -> None:
    assert Corpus().command("7f3a91") == "tpcheck replay 7f3a91"
    assert corpus.command("7f3a91") == f"tpcheck replay 7f3a91 --corpus {corpus.folder}"
    assert corpus.command("a/7f3a91.json") == "tpcheck replay a/7f3a91.json"
    assert Corpus().command("7f3a91", check="my file.py::row") == (
        "tpcheck replay 7f3a91 --check 'my file.py::row'"
    )


def test_a_removed_case_is_gone_and_removing_it_twice_is_fine(corpus: Corpus) -> None:
    corpus.save(ENTRY)
    corpus.remove(ENTRY.id)
    corpus.remove(ENTRY.id)
    assert corpus.of("row_linear", None) == []


def test_a_check_is_known_by_its_place_under_another_name(corpus: Corpus) -> None:
    corpus.save(ENTRY)
    place = ("/elsewhere/linear.py", "row_linear")
    assert [saved.id for saved in corpus.of("renamed", place)] == ["7f3a91"]
    assert corpus.of("row_linear", ("/elsewhere/linear.py", "other")) == []
    assert [s.id for s in corpus.orphans("/elsewhere/linear.py", {"other"})] == ["7f3a91"]
    assert corpus.orphans("/elsewhere/linear.py", {"row_linear"}) == []
    assert corpus.orphans("/elsewhere/other.py", set()) == []


def test_two_checks_of_one_name_keep_a_case_each(corpus: Corpus) -> None:
    here, there = ("/a/linear.py", "row"), ("/b/linear.py", "row")
    first = corpus.identity("row", here, ENTRY.case)
    corpus.save(replace(ENTRY, id=first, check="row", address=here))
    second = corpus.identity("row", there, ENTRY.case)
    corpus.save(replace(ENTRY, id=second, check="row", address=there))
    assert first == ENTRY.case.id("row") == corpus.identity("row", here, ENTRY.case)
    assert [s.id for s in corpus.of("row", here)] == [first]
    assert [s.id for s in corpus.of("row", there)] == [second]


def test_a_path_below_the_working_folder_is_saved_relative(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    corpus.save(replace(ENTRY, address=(str(tmp_path / "sub" / "a.py"), "row")))
    assert corpus.find("7f3a91").address == ("sub/a.py", "row")


def test_a_check_without_an_address_is_saved(corpus: Corpus) -> None:
    corpus.save(replace(ENTRY, address=None))
    assert corpus.find("7f3a91").address is None


def test_a_folder_that_can_not_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match=r"can't keep cases in .*file"):
        Corpus(tmp_path / "file").save(ENTRY)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tpcheck.report.files.os.fsync", full)
    with pytest.raises(InvalidArgument, match="No space left on device"):
        Corpus(tmp_path / "full").save(ENTRY)
    assert list((tmp_path / "full").iterdir()) == [], "nothing is left behind"


def test_a_case_that_can_not_be_forgotten_stays(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool) -> None:
        raise PermissionError(13, "Permission denied")

    kept = corpus.save(ENTRY)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        corpus.remove(ENTRY.id)
    assert kept.exists()
