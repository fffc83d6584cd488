"""What share was judged, in words and as JSON."""

from __future__ import annotations

import re

from tests import ROOT
from tpcheck.evidence.judged import Judged
from tpcheck.report import judged, text
from tpcheck.report.as_json import check
from tpcheck.verdict import CheckResult, Verdict
from tpcheck.vocabulary import Kind, Unjudged

Y, X = (Kind.OUTPUT, "output"), (Kind.INPUT_GRAD, "x")
WHOLE = Judged(1000, 1000, 2, 2)
MOST = Judged(2000, 1999, 2, 2, {Unjudged.OVERFLOW: 1})
AUX = Judged(5, 0, 1, 0, {Unjudged.EXTRA: 5})


def test_nothing_is_said_of_a_check_of_which_all_was_judged() -> None:
    assert judged.line({Y: WHOLE, X: Judged(0, 0, 1, 1)}) is None
    assert text.notes(CheckResult("c", Verdict.PASS, "gloo", judged={Y: WHOLE})) == []


def test_a_share_below_all_is_said_with_its_tensor_and_reason() -> None:
    (said,) = text.notes(CheckResult("c", Verdict.PASS, "gloo", judged={Y: WHOLE, X: MOST}))
    assert "judged 99.9 % of 3000 elements" in said
    assert "least of input_grad x: 99.9 %" in said and "overflows" in said


def test_what_only_the_candidate_returns_is_named_and_not_counted() -> None:
    said = judged.line({Y: WHOLE, (Kind.OUTPUT, "aux"): AUX})
    assert said is not None and said.startswith("not judged: output aux (")
    both = judged.line({X: MOST, (Kind.OUTPUT, "aux"): AUX})
    assert both is not None and "of 2000 elements" in both and "aux" not in both


def test_the_json_has_the_sums_and_each_tensor_below_all() -> None:
    result = CheckResult("c", Verdict.PASS, "gloo", judged={Y: WHOLE, X: MOST})
    assert check(result)["judged"] == {
        "elements": 3000,
        "judged": 2999,
        "incomplete": [
            {
                "kind": "input_grad",
                "tensor": "x",
                "elements": 2000,
                "judged": 1999,
                "cases": 2,
                "judged_in": 2,
                "why": {"overflow": 1},
            }
        ],
    }


def test_each_reason_has_its_sentence_and_stands_on_the_page() -> None:
    for reason in Unjudged:
        assert judged.why(Judged(why={reason: 1}))
    row = re.search(r"^\| `why` \| (.*) \|$", (ROOT / "docs/reports.md").read_text(), re.MULTILINE)
    assert row and set(re.findall(r"`([\w-]+)`", row[1])) == {reason.value for reason in Unjudged}
