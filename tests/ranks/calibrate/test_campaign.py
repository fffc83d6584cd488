"""The campaign: spread, resumable, and it does alarm on a candidate that is wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fixtures.mutants import MUTANTS
from properties.embedding import embedding
from properties.linear import row_linear
from tests import faulty
from tpcheck import Case, Check, specs
from tpcheck.calibrate.campaign import UNIT, Campaign, Plan, State, Unit, summary
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.report import calibration
from tpcheck.search.corpus import Corpus

PLAN = Plan(degrees=(1, 2), dtypes=("float32", "float16"))
RIGHT = [row_linear.named("row_linear"), embedding.named("embedding")]
WRONG = next(m for m in MUTANTS if m.name == "row_linear_averaged").check


def test_cases_are_spread_over_checks_degrees_and_dtypes(
    gloo: Engine, corpus: Corpus, tmp_path: Path
) -> None:
    campaign = Campaign(RIGHT, gloo, PLAN, State(tmp_path / "state", PLAN), corpus)
    found = campaign.run(8 * UNIT)
    assert found.whole.cases >= 8 * UNIT and not found.alarms and found.undecided == 0
    assert set(found.by_dtype) == {"float32", "float16"} and set(found.by_degree) == {1, 2}
    assert set(found.by_check) == {"row_linear", "embedding"}
    for line in found.by_dtype.values():
        assert 0.0 < line.median <= line.p99 <= line.largest <= 1.0
    text = calibration.campaign(found)
    assert "0 alarms" in text and "float16" in text


def test_a_later_run_goes_on_where_the_last_one_stopped(
    gloo: Engine, corpus: Corpus, tmp_path: Path
) -> None:
    path, whole = tmp_path / "state", tmp_path / "whole"
    ran: list[Unit] = []
    for cases in (UNIT, 3 * UNIT):
        campaign = Campaign(RIGHT, gloo, PLAN, State(path, PLAN), corpus)
        partial = campaign.run(cases, finished=ran.append)
    assert [unit.key for unit in ran] == list(State(path, PLAN).units)
    at_once = Campaign(RIGHT, gloo, PLAN, State(whole, PLAN), corpus).run(3 * UNIT)
    assert partial.by_dtype == at_once.by_dtype and partial.by_check == at_once.by_check
    with path.open("a") as file:
        file.write('{"check": "row_lin')  # killed while writing
    assert list(State(path, PLAN).units) == [unit.key for unit in ran]
    assert list(State(path, PLAN).units) == [unit.key for unit in ran]
    late = time.monotonic() - 1.0
    stopped = Campaign(RIGHT, gloo, PLAN, State(path, PLAN), corpus).run(10**6, until=late)
    assert stopped.whole == partial.whole


def test_a_wrong_candidate_alarms_and_its_case_is_kept(
    gloo: Engine, corpus: Corpus, tmp_path: Path
) -> None:
    plan = Plan(degrees=(2,), dtypes=("float64",))
    campaign = Campaign([WRONG], gloo, plan, State(tmp_path / "state", plan), corpus)
    found = campaign.run(UNIT)
    assert found.alarms and len(found.alarms) == found.whole.alarms
    assert corpus.find(found.alarms[0]).check == WRONG.title
    assert found.rate > 0.5
    assert found.alarms[0] in calibration.unit(next(iter(campaign.state.units.values())))


def test_a_candidate_that_raises_alarms_too(gloo: Engine, corpus: Corpus, tmp_path: Path) -> None:
    plan = Plan(degrees=(2,), dtypes=("float64",))
    wrong = faulty.check(faulty.OneRankRaises)
    found = Campaign([wrong], gloo, plan, State(tmp_path / "state", plan), corpus).run(1)
    saved = corpus.find(found.alarms[0])
    assert {m.kind for m in saved.mismatches} == {"exception"}
    assert saved.case.dtype == "float64" and saved.case.tp == 2


def test_what_has_no_case_is_passed_over(gloo: Engine, corpus: Corpus, tmp_path: Path) -> None:
    plan = Plan(degrees=(2, 4), dtypes=("float64",))
    listed = Check(
        specs.row_linear(),
        row_linear.candidate,
        name="listed",
        overrides={"cases": [faulty.CASE]},
    )
    campaign = Campaign([listed], gloo, plan, State(tmp_path / "state", plan), corpus)
    found = campaign.run(3)
    assert set(found.by_degree) == {2, 4}
    assert found.by_degree[4].cases == 0 and found.by_degree[2].cases == 3
    nowhere = Plan(degrees=(4,), dtypes=("float64",))
    campaign = Campaign([listed], gloo, nowhere, State(tmp_path / "none", nowhere), corpus)
    with pytest.raises(InvalidArgument, match="no check has a case"):
        campaign.run(3)


def test_figures_of_other_bounds_or_plans_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    State(path, PLAN)
    with pytest.raises(InvalidArgument, match="other degrees, seed"):
        State(path, Plan(degrees=(2,), dtypes=PLAN.dtypes, seed=1))
    monkeypatch.setattr("tpcheck.calibrate.campaign.digest_of_bounds", lambda: "other")
    with pytest.raises(InvalidArgument, match="other bounds"):
        State(path, PLAN)
    path.write_text("no JSON\n")
    with pytest.raises(InvalidArgument, match="no state of a campaign"):
        State(path, PLAN)
    path.write_text(json.dumps([1]) + "\n")
    with pytest.raises(InvalidArgument, match="with other"):
        State(path, PLAN)


def test_the_chance_that_is_ruled_out() -> None:
    def rate(cases: int, alarms: int) -> float:
        ids = [f"{i}" for i in range(alarms)]
        return summary([Unit("c", 2, "float64", 0, [0.5] * (cases - alarms), ids)]).rate

    # 95 % upper limits of a Poisson mean: 2.996 of 0 seen, 4.744 of 1, 10.513 of 5
    assert rate(1000, 0) == pytest.approx(2.996e-3, rel=0.02)
    assert rate(1000, 1) == pytest.approx(4.744e-3, rel=0.01)
    assert rate(1000, 5) == pytest.approx(10.513e-3, rel=0.01)
    assert summary([]).rate == 1.0


def test_quantiles_are_of_the_cases_that_passed() -> None:
    units = [
        Unit("c", 2, "float64", 0, [i / 100 for i in range(100)]),
        Unit("c", 2, "float64", 1, [1.0], ["abc"]),
    ]
    line = summary(units).by_dtype["float64"]
    assert (line.cases, line.alarms, line.largest) == (102, 1, 1.0)
    assert line.median == pytest.approx(0.5) and line.p99 == pytest.approx(0.99)
    json.dumps(summary([Unit("c", 2, "float64", 0)]).to_dict(), allow_nan=False)


def test_reseeded_cases_differ_in_their_seed_alone() -> None:
    from tpcheck import strategies

    again = strategies.reseeded([Case(), Case()], "key")
    assert len({case.seed for case in again}) == 2
    assert {case.describe().replace(f" seed={case.seed}", "") for case in again} == {"tp=2 float64"}
    assert again == strategies.reseeded([Case(), Case()], "key")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tpcheck.cli.main import main

    options = ["--cases", "5", "--tp", "2", "--dtype", "float16", "--json", "out.json"]
    check = str(Path("properties/linear.py").resolve())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["calibrate", "alarms", f"{check}::row_linear", *options])
    assert left.value.code == 0
    report = json.loads(Path("out.json").read_text())
    assert report["cases"] == UNIT and report["alarms"] == []
    assert list(report["by_dtype"]) == ["float16"] and report["by_dtype"]["float16"]["p99"] < 1.0
    assert Path(".tpcheck/campaign.jsonl").read_text().count("\n") == 2
