"""The campaign: spread, resumable, and it does alarm on a candidate that is wrong."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fixtures.mutants import MUTANTS
from properties.embedding import embedding
from properties.linear import row_linear
from tests import candidates
from tpcheck import Case, Check, specs
from tpcheck.calibrate import campaign as of_campaigns
from tpcheck.calibrate.campaign import Campaign
from tpcheck.calibrate.state import Grid, State
from tpcheck.cli import signals
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.figures.alarms import Unit
from tpcheck.report import calibration
from tpcheck.search.corpus import Corpus
from tpcheck.search.session import Session, open_session

UNIT = 3  # cases in a row, in place of ten

GRID = Grid(degrees=(1, 2), dtypes=("float32", "float16"))
RIGHT = [row_linear.named("row_linear"), embedding.named("embedding")]
WRONG = next(m for m in MUTANTS if m.name == "row_linear_averaged").check


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_campaigns, "UNIT", UNIT)


def test_cases_are_spread_over_checks_degrees_and_dtypes(
    gloo: Engine, corpus: Corpus, tmp_path: Path
) -> None:
    campaign = Campaign(RIGHT, State(tmp_path / "state", GRID), corpus)
    found = campaign.run(Session(gloo), 8 * UNIT)
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
        campaign = Campaign(RIGHT, State(path, GRID), corpus)
        part = campaign.run(Session(gloo), cases, finished=ran.append)
    assert [unit.key for unit in ran] == list(State(path, GRID).units)
    at_once = Campaign(RIGHT, State(whole, GRID), corpus).run(Session(gloo), 3 * UNIT)
    assert part.by_dtype == at_once.by_dtype and part.by_check == at_once.by_check
    with path.open("a") as file:
        file.write('{"check": "row_lin')  # killed while writing
    assert list(State(path, GRID).units) == [unit.key for unit in ran]
    assert list(State(path, GRID).units) == [unit.key for unit in ran]
    late = time.monotonic() - 1.0
    stopped = Campaign(RIGHT, State(path, GRID), corpus).run(Session(gloo), 10**6, until=late)
    assert stopped.whole == part.whole


@pytest.mark.sweep  # that jobs side by side give what one gives is also tested of checks
def test_side_by_side_the_same_units_come_in_the_same_order(tmp_path: Path) -> None:
    """Rounds, an alarm, a check that has no case, one that can't run, and where it stops."""
    listed = Check(row_linear.spec, row_linear.candidate, overrides={"cases": [candidates.CASE]})
    broken = Check(row_linear.spec, row_linear.candidate, overrides={"reference": stop})
    checks = [*RIGHT, WRONG.named("wrong"), listed.named("listed"), broken.named("broken")]
    grid, start = Grid(degrees=(1, 2), dtypes=("float64",)), partial(open_session, "gloo", 2)
    of: dict[str, list[Unit]] = {}
    troubled = []
    for way in ("alone", "beside"):
        kept = Corpus(tmp_path / way / "corpus")
        campaign = Campaign(checks, State(tmp_path / way / "state", grid), kept)
        ran = of.setdefault(way, [])
        if way == "alone":
            with start() as session:
                campaign.run(session, 9 * UNIT, finished=ran.append)
        else:
            campaign.run_side_by_side(start, 2, 9 * UNIT, finished=ran.append)
        troubled.append(campaign.troubled)
    told = [[replace(unit, seconds=0.0) for unit in units] for units in of.values()]
    assert told[0] == told[1] and len({unit.round for unit in told[0]}) > 1
    assert any(unit.alarms for unit in told[0]) and troubled[0] == troubled[1]
    assert set(troubled[0]) == {"broken"}
    kept_ = [{path.name for path in (tmp_path / way / "corpus").iterdir()} for way in of]
    assert kept_[0] == kept_[1]


def test_a_wrong_candidate_alarms_and_its_case_is_kept(
    gloo: Engine, corpus: Corpus, tmp_path: Path
) -> None:
    grid = Grid(degrees=(2,), dtypes=("float64",))
    campaign = Campaign([WRONG], State(tmp_path / "state", grid), corpus)
    found = campaign.run(Session(gloo), UNIT)
    assert found.alarms and len(found.alarms) == found.whole.alarms
    assert corpus.find(found.alarms[0]).check == WRONG.title
    assert found.rate > 0.5
    assert found.alarms[0] in calibration.unit(next(iter(campaign.state.units.values())))


def test_a_candidate_that_raises_alarms_too(gloo: Engine, corpus: Corpus, tmp_path: Path) -> None:
    grid = Grid(degrees=(2,), dtypes=("float64",))
    wrong = candidates.check(candidates.OneRankRaises)
    found = Campaign([wrong], State(tmp_path / "state", grid), corpus).run(Session(gloo), 1)
    saved = corpus.find(found.alarms[0])
    assert {m.kind for m in saved.mismatches} == {"exception"}
    assert saved.case.dtype == "float64" and saved.case.tp == 2


def test_what_has_no_case_is_passed_over(gloo: Engine, corpus: Corpus, tmp_path: Path) -> None:
    grid = Grid(degrees=(2, 4), dtypes=("float64",))
    listed = Check(
        specs.row_linear(),
        row_linear.candidate,
        name="listed",
        overrides={"cases": [candidates.CASE]},
    )
    campaign = Campaign([listed], State(tmp_path / "state", grid), corpus)
    found = campaign.run(Session(gloo), 3)
    assert set(found.by_degree) == {2, 4}
    assert found.by_degree[4].cases == 0 and found.by_degree[2].cases == 3
    narrow = replace(row_linear, name="narrow", overrides={"dtypes": ("float32",)})
    both = Grid(degrees=(2,), dtypes=("float32", "float16"))
    found = Campaign([narrow], State(tmp_path / "narrow", both), corpus).run(Session(gloo), UNIT)
    assert found.by_dtype["float32"].cases >= UNIT and found.by_dtype["float16"].cases == 0
    nowhere = Grid(degrees=(4,), dtypes=("float64",))
    campaign = Campaign([listed], State(tmp_path / "none", nowhere), corpus)
    with pytest.raises(InvalidArgument, match="no check has a case"):
        campaign.run(Session(gloo), 3)


def stop(case: Case) -> None:
    raise SystemExit(0)


def test_a_check_that_can_not_run_is_told_and_the_others_go_on(
    gloo: Engine, corpus: Corpus, tmp_path: Path
) -> None:
    grid = Grid(degrees=(2,), dtypes=("float64",))
    right = row_linear
    broken = Check(right.spec, right.candidate, name="broken", overrides={"reference": stop})
    campaign = Campaign([broken, right], State(tmp_path / "state", grid), corpus)
    found = campaign.run(Session(gloo), UNIT + 1)  # the other check has its turn, too
    assert not found.alarms and found.whole.cases > UNIT
    assert set(campaign.troubled) == {"broken"} and "SystemExit" in campaign.troubled["broken"]


def test_two_checks_of_one_name_are_refused(gloo: Engine, corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="two checks are called 'row_linear'"):
        Campaign([row_linear, row_linear], State(tmp_path / "s", Grid()), corpus)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tpcheck.cli.main import main

    options = ["--cases", str(UNIT - 1), "--tp", "2", "--dtype", "float16", "--json", "out.json"]
    check = str(Path("properties/linear.py").resolve())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["calibrate", "alarms", f"{check}::row_linear", *options])
    assert left.value.code == 0
    report = json.loads(Path("out.json").read_text())
    assert report["cases"] == UNIT and report["alarms"] == []
    assert list(report["by_dtype"]) == ["float16"] and report["by_dtype"]["float16"]["p99"] < 1.0
    assert Path(".tpcheck/campaign.jsonl").read_text().count("\n") == 2
    Path("broken.py").write_text("raise RuntimeError('no GPU here')\n")
    with pytest.raises(SystemExit) as left:
        main(["calibrate", "alarms", f"{check}::row_linear", "broken.py", *options])
    assert left.value.code == 2
    report = json.loads(Path("out.json").read_text())
    assert report["cases"] == UNIT and "no GPU here" in report["troubled"]["broken.py"]


def interrupt(case: Case) -> None:
    raise KeyboardInterrupt


def test_a_reference_that_raises_an_interrupt_is_no_ctrl_c(
    gloo: Engine, corpus: Corpus, tmp_path: Path
) -> None:
    grid = Grid(degrees=(2,), dtypes=("float64",))
    broken = Check(row_linear.spec, row_linear.candidate, overrides={"reference": interrupt})
    campaign = Campaign([broken], State(tmp_path / "state", grid), corpus)
    with signals.heard():
        campaign.run(Session(gloo), 1)
    assert "KeyboardInterrupt" in campaign.troubled[broken.title]
