"""The page of each report: it says what the report says, stands alone, and runs nobody's code."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.report.page.samples import CHECKS, Parsed, reports, verify
from tpcheck.errors import InvalidArgument
from tpcheck.report.page import contract, render
from tpcheck.report.page.render import html
from tpcheck.verdict import CheckResult

REPORTS = reports()
HOSTILE = '</script></style><script>alert(1)</script><img src="http://a.b/c" onerror=x>"\'>{{1+1}}'
#: Texts that are one of a few.
CLOSED = ("dtype", "memory", "family", "gradients", "mode")
#: What a field is not; each place of a report gets one of them.
ODD: list[Any] = [None, {"x": []}, [[]], -1, "odd"]


@pytest.mark.parametrize("verb", REPORTS)
def test_a_page_is_made_of_the_report_of_each_verb(verb: str) -> None:
    page = Parsed(html(REPORTS[verb]))
    ids = page.all("id")
    assert len(ids) == len(set(ids))
    inside = [link for link in page.all("href") if link != "data:,"]
    assert inside and all(link.startswith("#") and link[1:] in ids for link in inside)


def test_the_page_says_what_a_failure_is_and_how_to_see_it_again() -> None:
    page = Parsed(html(verify())).text
    for said in ("unclassified : why", "First seen in up (forward)",
                 "Known finding: x.md: a fault of torch ==2.* (2.13 is installed), seen at a.py:3",
                 "tpcheck replay 7f3a91",
                 "tp=2 float64 hidden=4", "/home/me/mlp.py", "all_reduce(sum) float64[1]",
                 "absent no package", "KNOWN", "2 of 4 elements",
                 "30 of 40 pairs", "width 1 to 16", "never drawn memory=sliced",
                 "mlp.py, lines 38 to 39", "⇄ 38 def forward(self, x):", "✗ 39 return <x> & 1",
                 "▶ first; differs", "up Column of my, forward at mlp.py:38"):  # fmt: skip
        assert said in page, said
    near, whole = page.split("the whole stack")[:2]
    assert "site-packages/torch" not in near and "site-packages/torch" in whole


def test_where_no_value_agreed_no_error_over_bound_is_said() -> None:
    def column(check: CheckResult) -> str:
        row = re.search(r"<tr data-verdict.*?</tr>", html(verify(check)), re.S)
        assert row
        return re.findall(r"<td[^>]*>(.*?)</td>", row[0], re.S)[-2]

    passed, failed = CHECKS[0], CHECKS[1]
    assert column(replace(failed, usage={"float64": 0.0})) == "–"
    assert column(replace(failed, usage={"float64": 0.0, "float32": 0.25})) == "0.25"
    assert column(replace(passed, usage={"float64": 0.0})) == "0"


def test_a_line_where_ranks_entered_a_collective_is_not_said_to_be_at_fault() -> None:
    report = verify()
    page = Parsed(html(report)).text
    assert "✗ marks the lines that the diagnosis names" in page
    assert "⇄ only says that ranks entered a collective there, right or wrong" in page
    none = json.dumps(report).replace('"named": [39]', '"named": []')
    page = Parsed(html(json.loads(none))).text
    assert "No line is known to be at fault; ⇄ only says" in page and "✗" not in page


def test_bytes_are_held_against_those_that_the_layout_gives() -> None:
    page = Parsed(html(verify())).text
    for said in ("held due by the layout held beyond it", "parameters 16 8 +8 gradients 8 8",
                 "checkpoint: read, not kept 4 8 -4"):  # fmt: skip
        assert said in page, said


def test_a_page_that_would_be_too_large_has_fewer_pictures_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = verify()
    whole = html(report)
    assert render.LARGEST < 5_000_000 and whole.count("▶ first") == 2
    monkeypatch.setattr(render, "FEWER", (1, 0))
    monkeypatch.setattr(render, "LARGEST", len(whole.encode()) - 1)
    fewer = html(report)
    assert fewer.count("▶ first") == fewer.count("the page would be larger") == 1
    monkeypatch.setattr(render, "LARGEST", 1)
    assert html(report).count("the page would be larger") == 2


def test_a_report_without_a_verdict_is_not_given_a_pass() -> None:
    mutants, alarms = copy.deepcopy(REPORTS["mutants"]), copy.deepcopy(REPORTS["alarms"])
    assert "<title>FAIL" in html(mutants) and "<title>FAIL" in html(alarms)
    mutants["rows"], alarms["alarms"] = mutants["rows"][1:], []
    mutants["rows"][0] |= {"killed": False, "trouble": "can't run"}
    for report in (mutants, alarms):
        page = html(report)
        assert "<title>tpcheck" in page and ">PASS<" not in page


def hostile(value: Any, field: str = "") -> Any:
    """The report with something hostile in every text that may hold anything, and in every key."""
    if isinstance(value, str):
        return value if field in CLOSED or value in ("nan", "inf") else HOSTILE
    if isinstance(value, list):
        return [hostile(one, field) for one in value]
    if isinstance(value, dict):
        own = {key: hostile(one, key) for key, one in value.items()}
        return own | ({HOSTILE: own["hidden"]} if "hidden" in own else {})
    return value


@pytest.mark.parametrize("verb", REPORTS)
def test_nothing_of_a_report_runs_or_is_fetched(verb: str) -> None:
    text = html(hostile(REPORTS[verb]))
    page, clean = Parsed(text), Parsed(html(REPORTS[verb]))
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in clean.elements} | {"details"}
    attributes = {name for _, own in page.elements for name in own}
    assert not {name for name in attributes if name.startswith("on") or name in ("src", "style")}
    assert all(link.startswith("#") or link == "data:," for link in page.all("href"))
    assert "alert(1)" in page.text and "{{1+1}}" in page.text
    assert not re.search(r"https?://(?!a\.b)", text)


def test_the_policy_allows_the_pages_own_style_and_script_alone() -> None:
    text = html(verify())
    policy = re.search(r'Security-Policy" content="([^"]*)"', text)
    assert policy is not None and "default-src 'none'" in policy[1]
    for tag in ("style", "script"):
        own = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert own is not None
        digest = base64.b64encode(hashlib.sha256(own[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1].replace("&#39;", "'")


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the fields of a report are."""
    if isinstance(value, dict):
        return [at, *(p for key, one in value.items() for p in places(one, (*at, key)))]
    if isinstance(value, list):
        return [at, *(p for i, one in enumerate(value) for p in places(one, (*at, i)))]
    return [at]


@pytest.mark.parametrize("verb", REPORTS)
def test_a_report_with_an_odd_field_has_a_page_or_is_refused_in_a_line(verb: str) -> None:
    refused = 0
    fields = {tuple("*" if isinstance(k, int) else k for k in p): p for p in places(REPORTS[verb])}
    for number, place in enumerate(fields.values()):
        odd = ODD[number % len(ODD)]
        report = copy.deepcopy(REPORTS[verb])
        inner = report
        for key in place[:-1]:
            inner = inner[key]
        if place:
            inner[place[-1]] = odd
        try:
            html(report if place else odd)
        except InvalidArgument as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 5


def test_what_is_missing_is_named() -> None:
    report = verify()
    del report["checks"][1]["counterexample"]["mismatches"][0]["kind"]
    with pytest.raises(InvalidArgument, match=r"checks\[1\].counterexample.mismatches\[0\] has no"):
        html(report)


def test_fields_of_a_later_version_are_passed_over() -> None:
    report = verify()
    report["checks"][0]["later"] = report["later"] = {"x": 1}
    assert html(report) == html(verify())


def test_a_file_that_is_no_report_is_refused(tmp_path: Any) -> None:
    for text in ("", "[", "[" * 100_000, "{}", "3", '{"environment": 1}', "\ud800"):
        file = tmp_path / "r.json"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(InvalidArgument) as refused:
            contract.known(contract.read(file))
        assert "\n" not in str(refused.value)
    with pytest.raises(InvalidArgument, match="No such file"):
        contract.read(tmp_path / "absent.json")
    file.write_text(json.dumps(verify()))
    assert contract.known(contract.read(file))[0] == "verify"
