"""The end of a run: what did not pass, what was cut, and how many cases looked for a failure."""

from __future__ import annotations

from tests.unit.report.test_text import FAILED
from tpcheck.report.summary import summary
from tpcheck.report.text import notes
from tpcheck.verdict import CheckResult, Verdict

PASSED = CheckResult("column", Verdict.PASS, "gloo", 20)
CUT = CheckResult("mlp", Verdict.PASS, "gloo", 6, asked=60)
LOST = CheckResult("block", Verdict.UNKNOWN, "gloo", reason="the time was up\nbefore")


def test_each_check_that_did_not_pass_or_was_cut_has_a_line() -> None:
    lines = summary(
        Verdict.FAIL, [PASSED, FAILED, CUT, LOST], skipped=2, seconds=31.46
    ).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "FAIL row_linear summed-twice: tpcheck replay 7f3a91",
        "CUT mlp time was up (6 of 60 cases)",
        "UNKNOWN block the time was up before",
        "",
        "FAIL 4 checks, 29 cases, 2 checks skipped, 1 check cut short, 31.5 s",
    ]


def test_of_one_check_there_is_the_last_line_alone() -> None:
    assert (
        summary(Verdict.FAIL, [FAILED], skipped=0, seconds=2.0) == "FAIL  1 check, 3 cases, 2.0 s"
    )


def test_cases_that_make_a_failure_smaller_are_counted_beside() -> None:
    result = CheckResult("row", Verdict.FAIL, "gloo", 3, smaller=41)
    assert summary(Verdict.FAIL, [result], skipped=0, seconds=2.0).endswith(" 3 cases, 2.0 s")
    assert [line.strip() for line in notes(result)] == ["41 more cases to make the failure smaller"]


def test_what_was_cut_says_so_below_its_line() -> None:
    assert [line.strip() for line in notes(CUT)] == ["time was up (6 of 60 cases)"]
