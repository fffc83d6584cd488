"""A saved case does not say which code is run: what is outside the working folder is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.search.test_corpus import ENTRY
from tpcheck.errors import CaseError, InvalidArgument
from tpcheck.search.corpus import Corpus
from tpcheck.search.replay import check_of, is_identical, notes_of, replay
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Kind

SOURCE = "raise RuntimeError('this ran')\n"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder, and one that is not: each with a file that says when it is run."""
    for name in ("work", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "code.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path / "work")


def saved(corpus: Corpus, file: str) -> str:
    """A case whose JSON names the file."""
    path = corpus.save(ENTRY)
    text = path.read_text().replace("/elsewhere/linear.py", file)
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("file", ["../elsewhere/code.py", "{}/elsewhere/code.py", "link.py"])
@pytest.mark.parametrize("by", ["id", "file"])
def test_code_outside_the_working_folder_is_not_run(
    corpus: Corpus, tmp_path: Path, file: str, by: str
) -> None:
    Path("link.py").symlink_to("../elsewhere/code.py")
    path = saved(corpus, file.format(tmp_path))
    named = path if by == "file" else ENTRY.id
    with pytest.raises(CaseError, match="give --trust") as caught:
        replay(named, corpus=corpus.folder)
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(InvalidArgument, match="this ran"):
        replay(named, corpus=corpus.folder, trust=True)
    with pytest.raises(InvalidArgument, match="this ran"):
        replay(named, corpus=corpus.folder, check="../elsewhere/code.py::row")


def test_code_in_the_working_folder_is(corpus: Corpus) -> None:
    with pytest.raises(InvalidArgument, match="this ran"):
        replay(saved(corpus, "code.py"), corpus=corpus.folder)


@pytest.mark.parametrize("file", ["a\\u0000b.py", "loop.py", "-", "no/such.py", "."])
def test_a_file_that_can_not_be_is_one_line(corpus: Corpus, file: str) -> None:
    Path("loop.py").symlink_to("loop.py")
    with pytest.raises(CaseError) as caught:
        replay(saved(corpus, file), corpus=corpus.folder)
    assert len(str(caught.value).splitlines()) == 1


CHECK = """
import tpcheck
from tpcheck import specs

memory = ("contiguous", "sliced")
row = tpcheck.Check(specs.row_linear(), lambda case, mesh: None, overrides={"memory": memory})
"""


def test_a_case_that_its_check_excludes_by_now_is_told_and_the_twin_has_no_note(
    corpus: Corpus,
) -> None:
    Path("code.py").write_text(CHECK)
    found = check_of(corpus.find(str(corpus.save(ENTRY))), "code.py::row")
    for memory, told in (
        ("sliced", []),
        (
            "expanded",
            [
                "memory=expanded, which is not one of contiguous, sliced: row excludes that now, "
                "so tpcheck verify leaves this case out"
            ],
        ),
    ):
        entry = replace(ENTRY, address=("code.py", "row"), case=replace(ENTRY.case, memory=memory))
        assert notes_of(entry, found) == told


OTHERS = """
import tpcheck
from tpcheck import specs

def build(case, mesh):
    return None

renamed = tpcheck.Check(specs.row_linear(even=True), build)
column = tpcheck.Check(specs.column_linear(), build)
"""


def test_a_check_of_another_spec_is_not_where_a_case_has_moved_to() -> None:
    Path("code.py").write_text(OTHERS)
    Path("old.py").write_text(CHECK)
    here = ("old.py", "row")
    for saved in (
        ENTRY,
        replace(ENTRY, address=None),
        replace(ENTRY, address=here),
        replace(ENTRY, address=here, spec=None),  # an older file: the check is still there
    ):
        assert check_of(saved, "code.py::renamed").title == "renamed"
        with pytest.raises(InvalidArgument) as caught:
            check_of(saved, "code.py::column")
        was = {here: "old.py::row", None: "row_linear"}.get(saved.address, "/elsewhere/linear.py")
        said = f"case 7f3a91 was saved for the spec 'row_linear' ({was}"
        assert str(caught.value).startswith(said) and "\n" not in str(caught.value)
        assert "and code.py::column is a check of 'column_linear'" in str(caught.value)
    known = replace(ENTRY, spec="column_linear")  # as the line says, where a spec was renamed
    assert check_of(known, "code.py::column").spec.name == "column_linear"


def test_a_spec_that_is_not_known_or_changed_in_its_place_is_told() -> None:
    Path("code.py").write_text(OTHERS)
    column = check_of(replace(ENTRY, spec=None), "code.py::column")
    assert notes_of(replace(ENTRY, spec=None), column)[0] == (
        "the case does not say for which spec it was saved; this check's is 'column_linear'"
    )
    here = replace(ENTRY, address=("code.py", "column"))
    assert notes_of(here, check_of(here, "code.py::column"))[0] == (
        "the case was saved for the spec 'row_linear'; this check's is 'column_linear' now"
    )
    assert check_of(here).title == "column"
    known = replace(here, spec="column_linear")
    assert not any("saved" in note for note in notes_of(known, check_of(known)))
    moved = check_of(ENTRY, "code.py::renamed")
    assert notes_of(ENTRY, moved)[0].startswith(
        "the case was saved for /elsewhere/linear.py::row_linear, and this is code.py::renamed: "
        "their specs have one name, 'row_linear'"
    )


def test_of_training_the_evidence_of_the_first_wrong_step_is_compared() -> None:
    """A search that makes a failure smaller looks at no later one."""
    first = [Mismatch("w@step2", Kind.PARAM, rank, error=1.0) for rank in range(2)]
    later = Mismatch("w@step3", Kind.PARAM, 0, error=3.0)
    known = replace(ENTRY, mismatches=first)
    assert is_identical(known, CaseResult(known.case, "gloo", [*first, later]))
    assert not is_identical(known, CaseResult(known.case, "gloo", [first[0], later]))
    other = [first[0], replace(first[1], error=1.5)]
    assert not is_identical(known, CaseResult(known.case, "gloo", other))
