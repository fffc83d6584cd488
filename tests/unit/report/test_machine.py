"""The reports for machines: strict JSON by the contract, JUnit that parses whatever it quotes."""

from __future__ import annotations

import json
import math
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpcheck.case import Case
from tpcheck.causes.reruns import RoundingOnly
from tpcheck.causes.where import Subject
from tpcheck.errors import InvalidArgument
from tpcheck.evidence import Values
from tpcheck.evidence.judged import Judged
from tpcheck.process.aspects import Left
from tpcheck.report.machine import as_junit, dumps, json_report, write
from tpcheck.report.text import notes
from tpcheck.verdict import (
    CheckResult,
    Counterexample,
    Diagnosis,
    FindingResult,
    LeftBehind,
    Mismatch,
    Verdict,
)
from tpcheck.vocabulary import Code, Kind, Unjudged

PASSED = CheckResult("good", Verdict.PASS, "gloo", 5, 0.5, ["float64"], [2], usage={"float64": 0.3})
BEYOND = Values(1, 2, norm_error=math.inf, norm_bound=1.0)
UNDECIDED = CheckResult("slow", Verdict.UNKNOWN, "gloo", reason="rank 1 <hangs> & waits")
ROUNDED = RoundingOnly(Subject(Kind.OUTPUT, "y"), math.inf)
FAILED = CheckResult(
    "bad",
    Verdict.FAIL,
    "gloo",
    counterexample=Counterexample(
        id="7f3a91",
        case=Case(),
        mismatches=[Mismatch("y", Kind.OUTPUT, 0, (0,), 1.0, math.nan, math.inf, 1e-15, BEYOND)],
        diagnosis=Diagnosis(Code.UNCLASSIFIED, ROUNDED, '<"&">'),
        engine="gloo",
        reproduce="tpcheck replay 7f3a91",
    ),
)


NOT_FINITE = {"wrong": 1, "of": 2, "norm_error": "inf", "norm_bound": 1.0}


def report(*results: CheckResult, **more: Any) -> dict[str, Any]:
    given = {"started": "now", "seconds": 1.0, "seed": 3, "engine": "gloo", "ranks": 4} | more
    return json_report(results, **given)  # type: ignore[arg-type]


def junit(*results: CheckResult) -> ElementTree.Element:
    suite = ElementTree.fromstring(as_junit(results, seconds=1.5)).find("testsuite")
    assert suite is not None
    return suite


def test_the_object_has_the_keys_of_the_contract() -> None:
    data = report(PASSED)
    assert set(data) >= {
        "schema_version", "verdict", "started", "seconds", "environment", "seed", "checks"
    }  # fmt: skip
    assert set(data["environment"]) >= {"torch", "python", "device", "engine"}
    assert data["environment"]["engine"] == "gloo" and data["seed"] == 3


@pytest.mark.parametrize(
    ("results", "unknown", "verdict"),
    [
        ([PASSED], None, "PASS"),
        ([PASSED, UNDECIDED], None, "UNKNOWN"),
        ([FAILED, UNDECIDED, PASSED], None, "FAIL"),
        ([PASSED], "the canary survived", "UNKNOWN"),
        ([FAILED], "the canary survived", "FAIL"),
        ([], None, "UNKNOWN"),
    ],
)
def test_the_worst_verdict_is_the_reports(
    results: list[CheckResult], unknown: str | None, verdict: str
) -> None:
    data = report(*results, unknown=unknown)
    assert (data["verdict"], data["reason"]) == (verdict, unknown)
    assert [c["name"] for c in data["checks"]] == [r.name for r in results]


def test_json_is_strict_where_values_are_not_finite() -> None:
    def refuse(token: str) -> None:
        raise AssertionError(token)

    data = json.loads(dumps(report(FAILED)), parse_constant=refuse)
    (found,) = data["checks"][0]["counterexample"]["mismatches"]
    assert (found["actual"], found["error"], found["detail"]) == ("nan", "inf", NOT_FINITE)


@pytest.mark.parametrize("value", [math.nan, -math.inf, {math.inf: 1}, "\ud800", {"\udcff": [()]}])
def test_json_is_strict_whatever_is_quoted(value: Any) -> None:
    def refuse(token: str) -> None:
        raise AssertionError(token)

    text = dumps({"x": value})
    assert json.dumps(json.loads(text, parse_constant=refuse), ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize(
    "said", ["\x00\x1b]0;title\x07", "\ud800", "\u202e", "\ufffe", "a\x85b", "]]>"]
)
def test_junit_spells_out_what_xml_can_not_hold_in_every_place(said: str) -> None:
    finding = FindingResult(said, said, said, said, said, True, otherwise=said)
    odd = replace(UNDECIDED, name=said, reason=said, engine=said, findings=[finding], notes=[said])
    text = as_junit([odd], seconds=1.0, unknown=said, skipped={said: said})
    root = ElementTree.fromstring(text.encode("utf-8"))
    shown = said.encode("unicode_escape").decode() if said != "]]>" else said
    places = [*(e.text for e in root.iter()), *(v for e in root.iter() for v in e.attrib.values())]
    assert sum(shown in (place or "") for place in places) >= 8


def test_junit_counts_failures_and_errors_apart() -> None:
    suite = junit(PASSED, FAILED, UNDECIDED)
    assert {k: suite.get(k) for k in ("tests", "failures", "errors")} == {
        "tests": "3", "failures": "1", "errors": "1"
    }  # fmt: skip
    assert {c.get("name"): [e.tag for e in c] for c in suite} == {
        "good": [], "bad": ["failure"], "slow": ["error"]
    }  # fmt: skip


def test_junit_quotes_the_report_and_escapes_it() -> None:
    suite = junit(FAILED, UNDECIDED)
    failed, error = suite.find("testcase/failure"), suite.find("testcase/error")
    assert failed is not None and error is not None
    assert '<"&">' in str(failed.text) and "tpcheck replay 7f3a91" in str(failed.text)
    assert "<hangs> & waits" in str(error.get("message"))


@settings(max_examples=100)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_junit_parses_whatever_a_rank_said(said: str) -> None:
    suite = junit(replace(UNDECIDED, reason=said))
    assert suite.find("testcase/error") is not None


def test_a_colour_code_in_a_reason_does_not_break_junit() -> None:
    assert junit(replace(UNDECIDED, reason="\x1b[31mred\x1b[0m")).get("errors") == "1"


def test_a_report_is_written_whole_with_its_folders_and_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "report.json"
    write(path, "one")
    write(path, "two")
    assert path.read_text() == "two"
    assert [p.name for p in path.parent.iterdir()] == ["report.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_report_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "report.json", tmp_path):
        with pytest.raises(InvalidArgument) as caught:
            write(path, "text")
        assert str(path) in str(caught.value) and len(str(caught.value).splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_a_report_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    folder.mkdir()
    with pytest.raises(InvalidArgument, match="can't write the report"):
        write(folder, "{}")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_link_stays_a_link_and_what_it_points_to_is_written(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    write(link, "{}\n")
    assert link.is_symlink()
    assert target.read_text() == "{}\n"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(pipe, "{}\n")
        assert os.read(reader, 100) == b"{}\n"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_text_beyond_ascii_is_written_whatever_the_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    real = os.fdopen
    monkeypatch.setattr(  # what open() takes under LC_ALL=C without UTF-8 mode
        os, "fdopen", lambda fd, mode, **k: real(fd, mode, **({"encoding": "ascii"} | k))
    )
    write(tmp_path / "report.xml", "row › output ×")
    assert (tmp_path / "report.xml").read_text(encoding="utf-8") == "row › output ×"


KNOWN = FindingResult(
    "torch", "==2.*", "2.13", "rank-crash", "docs/findings/x.md", True, 2,
    counterexample=FAILED.counterexample,
)  # fmt: skip


def test_a_known_finding_is_in_both_reports() -> None:
    result = replace(PASSED, findings=[KNOWN])
    (row,) = report(result)["checks"][0]["known_findings"]
    assert row["state"] == "known" and row["page"] == "docs/findings/x.md"
    assert row["counterexample"]["reproduce"] == "tpcheck replay 7f3a91"
    assert json.loads(dumps(report(result)))["verdict"] == "PASS"
    case = junit(result).find("testcase")
    assert case is not None and case.find("failure") is None
    found = junit(result).find("properties/property")
    assert found is not None and found.get("name") == "known-finding good"
    assert str(found.get("value")).startswith("known: rank-crash, torch ==2.*, docs/findings/x.md")
    assert "2 of 5 cases" in str(case.findtext("system-out"))


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"failed": 0}, "not-run"),
        ({"passed": 1}, "does-not-show"),
        ({"otherwise": "deadlock"}, "other-diagnosis"),
        ({"applies": False}, "other-release"),
    ],
)
def test_a_finding_that_does_not_hold_says_how(change: dict[str, Any], state: str) -> None:
    result = replace(PASSED, findings=[replace(KNOWN, **change)])
    assert report(result)["checks"][0]["known_findings"][0]["state"] == state
    found = junit(result).find("properties/property")
    assert found is not None and str(found.get("value")).startswith(state)


def test_junit_says_below_a_check_what_the_text_report_says() -> None:
    partly = Judged(1000, 999, 2, 2, {Unjudged.OVERFLOW: 1})
    left = LeftBehind(Case(), Left("os.umask", restored=True))
    odd = replace(PASSED, judged={(Kind.OUTPUT, "y"): partly}, left=[left], notes=["an orphan"])
    case = junit(odd).find("testcase")
    assert case is not None and case.findtext("system-out") == "\n".join(notes(odd))
    assert "judged 99.9 % of 1000 elements" in str(case.findtext("system-out"))
