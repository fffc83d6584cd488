"""Cases that look for a failure are told from those that make it smaller. No ranks."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.candidates import CASE
from tpcheck.evidence import Values
from tpcheck.search.news import Met
from tpcheck.search.tally import Tally
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Kind

WRONG = Mismatch("output", Kind.OUTPUT, 0, (0,), 1.0, 2.0, 1.0, 1e-9, Values(1, 1))


def test_what_runs_after_the_first_failure_did_not_look_for_it() -> None:
    told: list[Any] = []
    results: dict[str, CaseResult] = {}
    trials: Any = SimpleNamespace(results=results, onlooker=SimpleNamespace(news=told.append))

    def ran(seed: int, *wrong: Mismatch) -> CaseResult:
        case = replace(CASE, seed=seed)
        results[case.canonical()] = CaseResult(case, "gloo", list(wrong))
        return results[case.canonical()]

    tally = Tally(trials)
    saved, nothing = ran(1, WRONG), ran(2)
    tally.draws()
    first = ran(3, WRONG)
    tally.meets(first)
    tally.meets(ran(4, WRONG))
    assert tally.looked() == [saved, first], "one in which nothing was judged does not count"
    assert tally.found_after(first) == 1 and tally.found_after(saved) == 0
    assert told == [Met(first.case, "output", 3)], "a failure at a lower degree is none of its own"
    assert nothing not in tally.looked()
