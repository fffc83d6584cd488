"""A corpus trusts nothing: what a file of it says is one line, and stops nothing."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.search.test_corpus import ENTRY
from tpcheck.errors import CaseError, InvalidArgument
from tpcheck.search.corpus import Corpus, read


def refused(path: Path) -> str:
    """The one line with which `read` refuses a file; it names the file."""
    with pytest.raises(CaseError) as caught:
        read(path)
    text = str(caught.value)
    assert str(path) in text and len(text.splitlines()) == 1 and len(text) < 1000
    return text


def test_a_report_is_no_corrupt_case(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"schema_version": 1, "verdict": "FAIL", "checks": []}))
    text = refused(report)
    assert text.startswith(f"{report} is a report, not a saved case")


def test_the_cases_of_a_check_are_its_own_and_corrupt_ones_are_set_aside(corpus: Corpus) -> None:
    corpus.save(ENTRY)
    corpus.save(replace(ENTRY, id="aaaaaa", check="column_linear"))
    bad = corpus.folder / "bbbbbb.json"
    bad.write_text("{")
    assert [saved.id for saved in corpus.of("row_linear", None)] == ["7f3a91"]
    (line,) = corpus.complaints()
    assert str(bad) in line and len(line.splitlines()) == 1 and bad.exists()
    corpus.of("column_linear", None)
    assert corpus.complaints() == [], "it is said once"


def test_a_file_is_called_by_its_name_whatever_it_says(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    victim = tmp_path / "victim" / "x.json"
    victim.write_text("precious")
    path = corpus.save(ENTRY)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id": "../victim/x"}))
    (saved,) = corpus.of("row_linear", None)
    assert saved.id == corpus.find("7f3a91").id == "7f3a91"


@pytest.mark.parametrize("name", ["../victim/x", "sub/x", "/tmp/x", "..", "", "a\0b"])
def test_nothing_but_a_file_of_the_folder_is_saved_or_removed(
    corpus: Corpus, tmp_path: Path, name: str
) -> None:
    others = [tmp_path / "victim" / "x.json", corpus.folder / "sub" / "x.json"]
    for other in others:
        other.parent.mkdir(parents=True)
        other.write_text("precious")
    corpus.remove(name)
    if name not in ("", ".."):
        with pytest.raises(InvalidArgument, match="can't be called"):
            corpus.save(replace(ENTRY, id=name))
    assert all(other.read_text() == "precious" for other in others)


def test_what_is_not_a_regular_file_is_set_aside_and_not_waited_for(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.save(ENTRY)
    os.mkfifo(corpus.folder / "1.json")
    (corpus.folder / "2.json").mkdir()
    (corpus.folder / "3.json").symlink_to("nowhere.json")
    (corpus.folder / "4.json").symlink_to("4.json")
    (corpus.folder / "5.json").symlink_to("/dev/zero")
    (corpus.folder / "6.json").write_text("[" + "1," * 1000)
    monkeypatch.setattr("tpcheck.search.corpus.LARGEST", 1500)
    assert [saved.id for saved in corpus.of("row_linear", None)] == ["7f3a91"]
    said = corpus.complaints()
    assert len(said) == 6 and all(len(line.splitlines()) == 1 for line in said)
    assert "larger than 1500 bytes" in said[-1]


RAW = {
    "empty": b"",
    "truncated": b'{"schema_version": 1, "id": "7f',
    "binary": bytes(range(256)),
    "not utf-8": b'{"id": "\xff"}',
    "pickle": b"\x80\x04\x95\x00\x00\x00\x00.",
    "deep": b"[" * 100_000,
    "a number": b"3",
    "null": b"null",
    "a list": b"[1, 2]",
    "text": b'"case"',
    "an empty object": b"{}",
}


@pytest.mark.parametrize("kind", RAW)
def test_a_file_that_is_no_case_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "7f3a91.json"
    path.write_bytes(RAW[kind])
    refused(path)


def test_a_folder_and_a_missing_file_are_refused_in_one_line(tmp_path: Path) -> None:
    refused(tmp_path)
    refused(tmp_path / "gone.json")


BROKEN: dict[str, tuple[str, Any, str]] = {
    "version": ("schema_version", 2, "2"),
    "case is null": ("case", None, "NoneType"),
    "unknown field of the case": ("case", {"sede": 1}, "'seed'"),
    "wrong type in the case": ("case", {"seed": "x"}, "case.seed"),
    "dtype of the case": ("case", {"dtype": "int4"}, "int4"),
    "mismatches is a number": ("mismatches", 3, ""),
    "mismatch is a number": ("mismatches", [3], ""),
    "mismatch has an unknown field": ("mismatches", [{"tensr": "y"}], "tensr"),
    "mismatch has no kind": ("mismatches", [{"tensor": "y", "rank": 0}], "kind"),
    "mismatch with words for numbers": (
        "mismatches", [{"tensor": "y", "kind": "output", "rank": 0, "error": "big"}], "big"
    ),
    "index is a number": ("mismatches", [{"tensor": "y", "kind": "o", "rank": 0, "index": 1}], ""),
    "rank is text": ("mismatches", [{"tensor": "y", "kind": "output", "rank": "0"}], ""),
    "kind is a list": ("mismatches", [{"tensor": "y", "kind": [], "rank": 0}], ""),
    "diagnosis is a number": ("diagnosis", 3, ""),
    "address is one name": ("address", ["a.py"], ""),
    "check is a list": ("check", ["row"], "check is ['row']"),
    "engine is giant": ("engine", "x" * 10**6, "engine is"),
    "index is text": (
        "mismatches", [{"tensor": "y", "kind": "output", "rank": 0, "index": "ab"}], "'ab'"
    ),
    "a number is too large": (
        "mismatches", [{"tensor": "y", "kind": "output", "rank": 0, "error": 10**400}], "number"
    ),
    "a number is true": (
        "mismatches", [{"tensor": "y", "kind": "output", "rank": 0, "error": True}], "True"
    ),
    "seed of more than 64 bits": ("case", {"seed": 2**64}, "case.seed"),
    "absurd microbatches": ("case", {"microbatches": 10**9}, "case.microbatches"),
    "absurd dim": ("case", {"dims": {"n": 10**100}}, "case.dims"),
    "giant version": ("schema_version", "x" * 10**6, "schema_version"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_part_is_refused_in_one_line(name: str, corpus: Corpus) -> None:
    path = corpus.save(ENTRY)
    key, value, words = BROKEN[name]
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    assert words in refused(path)


@pytest.mark.parametrize("key", ["check", "address", "case", "engine", "mismatches"])
def test_each_missing_part_is_named(key: str, corpus: Corpus) -> None:
    path = corpus.save(ENTRY)
    data = json.loads(path.read_text())
    del data[key]
    path.write_text(json.dumps(data))
    assert f"'{key}'" in refused(path)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(max_examples=120)
@given(data=st.data())
def test_no_json_whatever_makes_another_error(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = Corpus(tmp_path_factory.getbasetemp() / "fuzz").save(ENTRY)
    whole = json.loads(path.read_text())
    key = data.draw(st.sampled_from([*whole, "everything"]))
    value = data.draw(anything)
    if key in ("case", "mismatches") and data.draw(st.booleans()):
        part = whole[key] if key == "case" else whole[key][0]
        value = part | {data.draw(st.sampled_from([*part])): value}
        value = value if key == "case" else [value]
    path.write_text(json.dumps(value if key == "everything" else whole | {key: value}))
    try:
        read(path)
    except CaseError as error:
        assert str(path) in str(error) and len(str(error).splitlines()) == 1
