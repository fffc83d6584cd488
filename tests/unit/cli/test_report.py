"""`tpcheck report`: a page of a report, or one line and exit code 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.report.page.samples import verify
from tpcheck.cli import main

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """`tpcheck report …` in an empty folder: its exit code, and what it printed on both streams."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main.main(["report", *words])
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out + printed.err

    return run


def test_a_page_is_written_beside_its_report(report: Command, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(verify()))
    assert report("r.json") == (0, "wrote r.html\n")
    assert report("r.json", "-o", "new/p.html")[0] == 0
    page = (tmp_path / "r.html").read_text()
    assert page == (tmp_path / "new" / "p.html").read_text()
    assert page.startswith("<!doctype html>") and "7f3a91" in page


def test_a_page_does_not_take_the_place_of_its_report(report: Command, tmp_path: Path) -> None:
    text = json.dumps(verify())
    for name, options in (("r.html", ()), ("r.json", ("-o", "./r.json"))):
        (tmp_path / name).write_text(text)
        code, printed = report(name, *options)
        assert code == 2 and f"take the place of the report {name}: give -o" in printed
        assert (tmp_path / name).read_text() == text


@pytest.mark.parametrize("folder", [".", "/", ".."])
def test_a_folder_is_no_report(report: Command, folder: str) -> None:
    code, printed = report(folder)
    assert code == 2 and printed.startswith("tpcheck: ") and printed.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "can't read the report r.json: No such file"),
        ("{", "the report r.json is not JSON"),
        ("{}", "the report r.json is malformed: it is not what the --json of"),
        (
            '{"environment": {}, "schema_version": "x"}',
            "the report r.json is malformed: schema_version is 'x', not a whole number",
        ),
    ],
)
def test_what_is_not_a_report_is_one_line(
    report: Command, text: str | None, said: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "r.json").write_text(text)
    code, printed = report("r.json")
    assert code == 2 and said in printed and printed.count("\n") == 1, printed
    assert not (tmp_path / "r.html").exists()


def test_a_page_that_cannot_be_written_is_one_line(report: Command, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(verify()))
    (tmp_path / "file").touch()
    for where in ("file/p.html", "checks.py", "."):
        code, printed = report("r.json", "-o", where)
        assert code == 2 and "can't write the report" in printed and printed.count("\n") == 1
