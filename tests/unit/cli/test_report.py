"""`tpcheck report`: a page of a report, or one line and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import tpcheck
from tests.unit.report.page.samples import verify


def test_a_page_is_written_beside_its_report(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(verify()))
    assert tpcheck(["report", "r.json"], tmp_path) == (0, "wrote r.html\n")
    assert tpcheck(["report", "r.json", "-o", "new/p.html"], tmp_path)[0] == 0
    page = (tmp_path / "r.html").read_text()
    assert page == (tmp_path / "new" / "p.html").read_text()
    assert page.startswith("<!doctype html>") and "7f3a91" in page


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
def test_what_is_not_a_report_is_one_line(text: str | None, said: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "r.json").write_text(text)
    code, printed = tpcheck(["report", "r.json"], tmp_path)
    assert code == 2 and said in printed and printed.count("\n") == 1, printed
    assert not (tmp_path / "r.html").exists()


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(verify()))
    (tmp_path / "file").touch()
    for where in ("file/p.html", "checks.py", "."):
        code, printed = tpcheck(["report", "r.json", "-o", where], tmp_path)
        assert code == 2 and "can't write the report" in printed and printed.count("\n") == 1
