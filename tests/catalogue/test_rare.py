"""Faults that few cases show: each fails in a case made for it, and passes in the one beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.catalogue.rare.faults import FAULTS, SELDOM
from tests.catalogue.rare.rates import NEEDS
from tests.catalogue.rare.witnesses import WITNESSES
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.report import as_json
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict


def test_each_fault_has_a_case_that_shows_it() -> None:
    assert WITNESSES.keys() == FAULTS.keys()


def test_what_a_fault_needs_is_there_in_the_case_that_shows_it() -> None:
    assert NEEDS.keys() == SELDOM.keys() - {"masked_softmax_first_block"}
    assert all(needs(WITNESSES[name][0]) for name, needs in NEEDS.items())


def _run(engine: Engine, name: str, case: Case) -> CheckResult:
    check = FAULTS[name]
    listed = replace(check, spec=replace(check.spec, cases=[case]))
    return Search(listed, engine, Options(examples=1, corpus=None)).run()


@pytest.mark.sweep
@pytest.mark.parametrize("name", FAULTS)
def test_a_rare_fault_needs_all_its_conditions(gloo: Engine, name: str) -> None:
    wrong, right = WITNESSES[name]
    assert _run(gloo, name, wrong).verdict is Verdict.FAIL
    beside = _run(gloo, name, right)
    assert beside.verdict is Verdict.PASS, as_json.check(beside)
