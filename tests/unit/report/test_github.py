"""What GitHub is shown: one command per check that does not pass, in a form its runner reads, and a
summary in which nothing of others is Markdown."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.report.test_machine import FAILED, PASSED, UNDECIDED
from tpcheck.report import github
from tpcheck.verdict import CheckResult, Verdict

HERE = Path(".")
COMMAND = re.compile(r"::(\w+) ([^\r\n]*?)::([^\r\n]*)")


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """As GitHub's runner does: the list up to the next `::`, divided at commas, then unescaped."""
    found = COMMAND.fullmatch(line)
    assert found is not None, line
    kind, given, message = found.groups()
    pairs = [pair.partition("=")[::2] for pair in given.split(",")]
    return kind, {key: unescaped(value) for key, value in pairs}, unescaped(message)


def unescaped(text: str) -> str:
    for spelled, meant in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(spelled, meant)
    return text


def test_a_failure_is_an_error_an_unknown_a_warning_and_a_pass_is_nothing() -> None:
    lines = github.commands([PASSED, FAILED, UNDECIDED], HERE)
    assert [(kind, given["title"]) for kind, given, _ in map(parsed, lines)] == [
        ("error", "FAIL bad"),
        ("warning", "UNKNOWN slow"),
    ]
    assert github.commands([PASSED], HERE) == []


def test_a_run_that_decides_nothing_is_a_warning_of_its_own() -> None:
    lines = github.commands([PASSED], HERE, unknown="the canary survived")
    assert [parsed(line) for line in lines] == [
        ("warning", {"title": "UNKNOWN"}, "the canary survived")
    ]


def test_the_message_is_the_page_with_what_to_paste() -> None:
    _, _, message = parsed(*github.commands([FAILED], HERE))
    assert message.startswith("FAIL  bad › y") and len(message.splitlines()) > 3
    assert message.endswith("reproduce      tpcheck replay 7f3a91")


@settings(max_examples=200)
@given(st.text(st.sampled_from("a%:,\r\n=;023AD…|`"), min_size=1, max_size=12))
def test_no_text_of_others_ends_its_command(said: str) -> None:
    odd = replace(UNDECIDED, name=said, reason=said)
    kind, given_, message = parsed(*github.commands([odd], HERE))
    shown = said.replace("\r", r"\r")
    assert kind == "warning" and set(given_) == {"title"}
    assert given_["title"] == "UNKNOWN " + shown.replace("\n", r"\n")
    assert message.endswith(shown)


def test_the_line_is_that_of_the_check_relative_to_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "a,b.py").write_text("x = 1\n\nbad = x\n")
    monkeypatch.chdir(folder)
    odd = replace(FAILED, address="a,b.py::bad")
    (line,) = github.commands([odd], tmp_path)
    assert line.startswith("::error file=models/a%2Cb.py,line=3,title=FAIL bad::")
    (line,) = github.commands([odd], tmp_path / "elsewhere")
    assert line.startswith("::error title=FAIL bad::")


def summary(*results: CheckResult, **more: object) -> str:
    verdict = max(result.verdict for result in results)
    return github.summary(verdict, results, seconds=3.0, **more)  # type: ignore[arg-type]


def test_the_summary_has_a_row_per_check_and_the_pages_of_those_that_do_not_pass() -> None:
    text = summary(PASSED, FAILED, UNDECIDED, unknown="interrupted", skipped={"other": "no triton"})
    assert text.startswith("## tpcheck: FAIL\n\n3 checks, 5 cases, 1 check skipped, 3.0 s\n")
    assert "| PASS | <code>good</code> | 5 | 2 | float64 | gloo | 0.5 |" in text
    assert "| FAIL | <code>bad</code> |" in text and "UNKNOWN: <code>interrupted</code>" in text
    assert "| SKIPPED | <code>other</code> <code>no triton</code> |" in text
    assert text.count("```text\n") == 2 and "tpcheck replay 7f3a91" in text


def test_nothing_of_others_is_markdown_in_the_summary() -> None:
    odd = replace(UNDECIDED, name="<b>|*x*", reason="````\n# a heading")
    text = summary(odd)
    (row,) = [line for line in text.splitlines() if line.startswith("| UNKNOWN")]
    assert "<code>&lt;b&gt;&#124;*x*</code>" in row and row.count("|") == 8
    assert "\n`````text\n" in text and text.rstrip().endswith("\n`````")


def test_a_summary_is_never_longer_than_github_takes() -> None:
    long = replace(UNDECIDED, reason="é" * 200_000)
    text = summary(*[long] * 4, FAILED)
    assert len(text.encode()) <= github.LARGEST < 1024**2
    assert text.count("```text\n") == 2 and "In the log: 3 more pages." in text


def test_a_known_finding_and_a_run_cut_short_are_told() -> None:
    known = replace(PASSED, findings=[], asked=60)
    assert "| 5 of 60, time was up |" in summary(known)
    assert known.verdict is Verdict.PASS
