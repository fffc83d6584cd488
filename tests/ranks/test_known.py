"""Known findings are held to: where declared they must show, with their diagnosis, or no PASS."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from typing import Any

import pytest

from fixtures.mutants import MUTANTS
from fixtures.parallel.linear import RowLinear
from tests import ROOT, candidates
from tpcheck import Case, Check, KnownFinding
from tpcheck.engines.engine import Engine
from tpcheck.evidence.known import Likeness
from tpcheck.failed import CheckFailed
from tpcheck.report import as_json, text
from tpcheck.search.collect import collect
from tpcheck.search.corpus import Corpus
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.search.verify import verify
from tpcheck.verdict import CheckResult, Verdict

VERSION = importlib.metadata.version("torch").partition("+")[0]
CRASH = replace(candidates.CASE, dims=candidates.linear_dims(5))


def odd(case: Case) -> bool:
    return case["in_features"] % 2 == 1


FINDING = KnownFinding("torch", f"=={VERSION}", "rank-crash", CRASH, "docs/findings/x.md", odd)
OPTIONS = Options(examples=4, degrees=(2,), corpus=None, shrink_cases=0)


class RaisesWhereOdd(RowLinear):
    """Right where `in_features` is even; elsewhere the last rank raises."""

    def __init__(self, in_features: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(in_features, *args, **kwargs)
        self.odd = in_features % 2 == 1

    def sum_output(self, partial: Any) -> Any:
        if self.odd and self.rank == self.degree - 1:
            raise ValueError("deliberate: an odd size")
        return super().sum_output(partial)


class ForgetsWhereOdd(RaisesWhereOdd):
    """Right where `in_features` is even; elsewhere it forgets its all-reduce."""

    def sum_output(self, partial: Any) -> Any:
        return partial if self.odd else RowLinear.sum_output(self, partial)


def check(cls: type, *known: KnownFinding) -> Check:
    return replace(candidates.check(cls), known=known, overrides={"modes": ()})


def run(check: Check, engine: Engine, options: Options = OPTIONS) -> CheckResult:
    return Search(check, engine, options).run()


def test_a_finding_that_shows_as_declared_is_shown_and_is_no_failure(
    gloo: Engine, corpus: Corpus
) -> None:
    result = run(check(RaisesWhereOdd, FINDING), gloo, replace(OPTIONS, corpus=corpus))
    (row,) = result.findings
    assert result.verdict is Verdict.PASS and row.state == "known"
    assert 1 < row.failed < result.examples, "drawn cases are held to it, too"
    assert row.counterexample is not None and row.counterexample.case.dims["in_features"] % 2 == 1
    assert row.counterexample.diagnosis.code == "rank-crash"
    assert corpus.find(row.counterexample.id).case.canonical()
    assert text.line(result).startswith("PASS")
    (line,) = text.findings(result)
    for word in ("rank-crash", f"torch =={VERSION}", "docs/findings/x.md", f"of {result.examples}"):
        assert word in line


def test_what_the_finding_does_not_cover_still_fails(gloo: Engine) -> None:
    result = run(check(RaisesWhereOdd, replace(FINDING, when=None)), gloo)
    assert result.verdict is Verdict.FAIL and result.counterexample is not None
    assert result.counterexample.case.dims["in_features"] != CRASH["in_features"]
    known = result.counterexample.known
    assert known is not None and known.how is Likeness.OTHER_CASE
    assert "docs/findings/x.md is declared with this diagnosis, and not" in text.page(result)


def test_a_finding_that_no_longer_shows_is_no_pass(gloo: Engine) -> None:
    result = run(check(RowLinear, FINDING), gloo)
    assert result.verdict is Verdict.UNKNOWN and result.findings[0].state == "does-not-show"
    assert result.reason is not None and "docs/findings/x.md" in result.reason
    assert f"does not show with torch {VERSION}" in result.reason
    assert "should fail did not" in text.findings(result)[0]


def test_a_finding_that_shows_in_its_own_case_only_where_it_says_more_is_no_pass(
    gloo: Engine,
) -> None:
    everywhere = replace(FINDING, when=lambda case: True)
    result = run(check(RaisesWhereOdd, everywhere), gloo)
    assert result.verdict is Verdict.UNKNOWN


def test_a_finding_with_another_diagnosis_fails(gloo: Engine) -> None:
    result = run(check(ForgetsWhereOdd, FINDING), gloo)
    assert result.verdict is Verdict.FAIL and result.counterexample is not None
    assert result.counterexample.diagnosis.code == "missing-all-reduce"
    known = result.counterexample.known
    assert known is not None and known.how is Likeness.OTHER_DIAGNOSIS
    assert result.findings[0].state == "other-diagnosis"
    assert "diagnosed missing-all-reduce" in text.findings(result)[0]


def test_a_wrong_value_is_held_to_its_diagnosis_as_a_crash_is(gloo: Engine) -> None:
    result = run(check(ForgetsWhereOdd, replace(FINDING, code="missing-all-reduce")), gloo)
    assert result.verdict is Verdict.PASS and result.findings[0].failed > 1


@pytest.mark.parametrize(
    ("package", "releases"), [("torch", f"!={VERSION}"), ("not-installed", ">=0")]
)
def test_outside_its_releases_a_finding_does_not_count(
    gloo: Engine, package: str, releases: str
) -> None:
    other = replace(FINDING, package=package, releases=releases)
    result = run(check(RaisesWhereOdd, other), gloo)
    assert result.verdict is Verdict.FAIL and result.findings[0].state == "other-release"
    assert "does not count" in text.findings(result)[0]
    assert run(check(RowLinear, other), gloo).verdict is Verdict.PASS


def test_a_finding_out_of_the_run_s_reach_is_shown_as_not_run(gloo: Engine) -> None:
    high = replace(FINDING, case=replace(CRASH, mesh={"tp": 4}), when=lambda case: case.tp == 4)
    result = run(check(RowLinear, high), gloo)
    assert result.verdict is Verdict.PASS and result.findings[0].state == "not-run"


def test_a_check_that_only_fails_as_known_is_not_called_a_pass(gloo: Engine) -> None:
    wrong = next(m for m in MUTANTS if m.name == "row_linear_without_all_reduce").check
    always = replace(FINDING, code="missing-all-reduce", when=lambda case: True)
    result = run(replace(wrong, known=[always]), gloo, replace(OPTIONS, dtypes=("float64",)))
    assert result.only_known and text.line(result).startswith("KNOWN")
    assert as_json.check(result)["verdict"] == "PASS"


def test_a_saved_case_of_a_known_finding_is_kept_and_is_no_failure(
    gloo: Engine, corpus: Corpus
) -> None:
    options = replace(OPTIONS, corpus=corpus)
    assert run(check(RaisesWhereOdd), gloo, options).verdict is Verdict.FAIL
    saved = corpus.of("RaisesWhereOdd", None)
    assert run(check(RaisesWhereOdd, FINDING), gloo, options).verdict is Verdict.PASS
    assert {s.id for s in saved} <= {s.id for s in corpus.of("RaisesWhereOdd", None)}


@pytest.mark.sweep  # of what is not known it is in each run
def test_real_ranks_confirm_a_finding_that_threads_see(gloo: Engine, threads: Engine) -> None:
    known = check(ForgetsWhereOdd, replace(FINDING, code="missing-all-reduce"))
    result = Search(known, threads, OPTIONS, gloo).run()
    assert result.verdict is Verdict.PASS and result.findings[0].failed > 1


def test_verify_returns_known_findings_and_raises_where_they_do_not_show(
    gloo: Engine, corpus: Corpus
) -> None:
    given: dict[str, Any] = {"engine": gloo, "examples": 4, "degrees": (2,)}
    given["corpus"] = corpus.folder
    (result,) = verify(check(RaisesWhereOdd, FINDING), **given)
    assert result.findings[0].failed
    with pytest.raises(CheckFailed, match="does not show"):
        verify(check(RowLinear, FINDING), **given)


@pytest.mark.parametrize(
    "folders",
    [
        ("", "_frameworks"),
        pytest.param(("_sweeps",), marks=pytest.mark.sweep),  # loads a hundred architectures
    ],
)
def test_every_finding_that_the_properties_declare_is_written_up(folders: tuple[str, ...]) -> None:
    places = [str(ROOT / "properties" / name) for name in folders]
    declared = [f for c in collect(places) for f in c.known]
    assert declared
    for finding in declared:
        assert (ROOT / finding.page).is_file(), finding.page
        assert finding.package in (ROOT / finding.page).read_text()
