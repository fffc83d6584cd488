"""What is said of the cases that were not run."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests import candidates
from tpcheck import Case
from tpcheck.evidence.judged import Judged
from tpcheck.report import reasons
from tpcheck.search.options import Options
from tpcheck.search.outcome import left_out, masks_too_small, undecided
from tpcheck.search.reach import Open
from tpcheck.verdict import CaseResult
from tpcheck.vocabulary import Kind, Unjudged

CASES = [Case({"n": n}) for n in (1, 2, 3)] + [Case({"n": 1}, mesh={"tp": 4})]


def run_of(ran: list[Case], examples: int) -> tuple[Any, Any, list[CaseResult]]:
    """A search of the listed cases that came to `ran` of them, all passing."""
    results = [CaseResult(case, "gloo") for case in ran]
    known = {result.case: result for result in results}
    ledger = SimpleNamespace(stale=lambda: None)
    trials = SimpleNamespace(result=known.get, results={}, ledger=ledger)
    check = replace(candidates.check(candidates.Row), overrides={"cases": CASES})
    options = Options(examples=examples, degrees=(2,), corpus=None)
    return (
        trials,
        SimpleNamespace(check=check, options=options, impossible=set(), cut=len(ran) < examples),
        results,
    )


def test_listed_cases_for_which_there_are_too_few_examples_are_told() -> None:
    trials, hunt, results = run_of(CASES[:2], 2)
    assert undecided(trials, hunt, results, {}) is None
    (line,) = left_out(trials, hunt)
    assert line.startswith("2 of 4 listed cases did not run (tp=2 float64 n=3")
    assert line.endswith("give --examples 4")


@pytest.mark.parametrize("examples", [4, 20])
def test_a_listed_degree_for_which_there_was_no_time_is_unknown(examples: int) -> None:
    trials, hunt, results = run_of(CASES[:2], examples)
    assert undecided(trials, hunt, results, {}) == Open(reasons.never_ran([4]), more=True)
    assert left_out(trials, hunt)[0].endswith("the time was up")
    hunt.cut = False  # a failure ended it that real ranks do not have
    assert left_out(trials, hunt) == []


def test_where_all_have_run_nothing_is_said() -> None:
    trials, hunt, results = run_of(CASES, 4)
    assert undecided(trials, hunt, results, {}) is None
    assert left_out(trials, hunt) == []


def test_a_degree_without_a_case_is_told() -> None:
    trials, hunt, _ = run_of(CASES, 4)
    hunt.impossible = {8, 4}
    (line,) = left_out(trials, hunt)
    assert line.startswith("its spec has no case at tp=4,8: the examples")


def test_where_no_case_counts_the_first_one_s_reason_is_told() -> None:
    trials, hunt, _ = run_of([], 4)
    assert undecided(trials, hunt, [], {}) == Open(reasons.NO_TIME, more=True)
    trials.results = {"a case": CaseResult(CASES[0], "gloo", unknown="build has no end")}
    assert undecided(trials, hunt, [], {}) == Open("build has no end", case=CASES[0])


def test_a_case_in_which_nothing_was_judged_is_made_good_by_others() -> None:
    trials, hunt, results = run_of(CASES, 4)
    output = Kind.OUTPUT, "y"
    blind = CaseResult(CASES[0], "gloo", unknown="none", judged={output: Judged(4, 0, 1, 0)})
    trials.results = {0: blind}
    nothing = undecided(trials, hunt, [], {})
    assert nothing is not None and nothing.more and nothing.case is None
    trials.results[1] = CaseResult(CASES[1], "gloo", unknown="not checked: tf32")
    assert undecided(trials, hunt, [], {}) == replace(nothing, more=False)
    trials.results = dict(enumerate([*results, blind]))
    assert undecided(trials, hunt, results, {output: Judged(8, 4, 2, 1)}) is None
    trials.results[0] = CaseResult(CASES[0], "gloo", unknown="not checked: tf32")
    assert undecided(trials, hunt, results, {}) == Open("not checked: tf32", case=CASES[0])


def test_where_only_empty_cases_count_what_kept_others_from_it_is_told() -> None:
    trials, hunt, results = run_of(CASES, 4)
    empty = {(Kind.OUTPUT, "y"): Judged(0, 0, 1, 1)}
    blind = {(Kind.OUTPUT, "y"): Judged(4, 0, 1, 0, {Unjudged.NOT_FINITE: 4})}
    trials.results = {"a": CaseResult(CASES[0], "gloo", judged=empty)}
    assert undecided(trials, hunt, results, empty) == Open(reasons.all_empty(4), more=True)
    trials.results["b"] = CaseResult(CASES[1], "gloo", unknown="nothing was judged", judged=blind)
    assert undecided(trials, hunt, results, empty) == Open(reasons.nothing_judged(blind), more=True)
    full = {(Kind.OUTPUT, "y"): Judged(4, 4, 1, 1)}
    assert undecided(trials, hunt, results, full) is None
    assert undecided(trials, hunt, results, {}) is None, "all that count failed as is known"


def test_masks_too_small_in_every_case_to_tell_the_ranks_apart_are_told() -> None:
    trials, _, results = run_of(CASES, 4)
    trials.results = dict(enumerate(results))
    assert masks_too_small(trials) == []
    for result, bits in zip(results, (4.0, 20.0, 12.0), strict=False):
        result.telling = {"model.py:7": bits, "model.py:9": 2 * bits}
    (line,) = masks_too_small(trials)
    assert "model.py:7 (20 bits)" in line and "model.py:9" not in line
    results[-1].telling = {"model.py:7": 32.0}
    assert masks_too_small(trials) == []
