"""The fault campaign's own judgement fails where it should. The campaign is `make torture`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.catalogue.torture import campaign, deaths, faults, footprint, judge, known, permutations
from tests.catalogue.torture.fault import ANY, FAIL, KINDS, PASS, Effect, Place, expectation
from tests.catalogue.torture.judge import Row, Seen
from tests.catalogue.torture.records import Records
from tests.catalogue.torture.rounds import Round, rounds
from tpcheck import Engine
from tpcheck.protocol.leftovers import INSIDE
from tpcheck.search.session import Session

assert faults

HARMLESS = Round(
    engine="gloo",
    number=0,
    kind="one-more-on-every-rank",
    variant=0,
    place=Place.FORWARD,
    whole=True,
    mode="apart",
    within="",
    followers=("RowLinear", "Unwritten"),
    order=(0, 1, 2),
)


def row(*seen: Seen, **more: object) -> Row:
    return replace(Row("gloo", 0, "sleeps", "a label", list(seen)), **more)


def seen(verdict: str, *expected: str, name: str = "one", reason: str = "") -> Seen:
    return Seen(name, "follow-up", expected, verdict, reason)


# ---- what is run


def test_there_are_600_faults_of_85_kinds_and_each_is_met() -> None:
    found = rounds("gloo", 640, seed=0)
    assert len(found) == len({(one.kind, one.variant, one.place) for one in found}) == 640
    assert len({one.kind for one in found}) == len(KINDS) >= 85
    assert found == rounds("gloo", 640, seed=0) != rounds("gloo", 640, seed=1)


def test_a_campaign_goes_on_with_what_is_not_done(tmp_path: Path) -> None:
    planned = rounds("threads", 5, seed=0)
    records = Records(tmp_path / "state.jsonl")
    records.add(Row("threads", 0, planned[0].kind, planned[0].label, [seen("PASS", "PASS")]))
    records.add(Row("threads", 1, planned[1].kind, "of another plan"))
    with records.file.open("a") as file:
        file.write('{"engine": "thr')  # it was killed here
    assert campaign.left_of(planned, records.rows()) == planned[1:]


def test_where_a_fault_acts_says_what_becomes_of_its_candidate() -> None:
    assert expectation(Effect.RAISES, Place.FORWARD) == FAIL
    assert expectation(Effect.RAISES, Place.DESTRUCTOR) == PASS
    assert expectation(Effect.LEAVES, Place.DESTRUCTOR) == PASS
    assert expectation(Effect.MEDDLES, Place.FORWARD) == ANY


# ---- what is wrong


@pytest.mark.parametrize(
    ("one", "what"),
    [
        (seen("PASS", "FAIL"), "wrong PASS"),
        (seen("FAIL", "PASS"), "wrong FAIL"),
        (seen("UNKNOWN", "PASS"), "wrong UNKNOWN"),
        (seen("PASS", "PASS"), None),
        (seen("FAIL", *ANY), None),
    ],
)
def test_a_verdict_that_is_not_expected_is_wrong(one: Seen, what: str | None) -> None:
    assert one.wrong == what
    assert row(one).wrong == (what is not None)


@pytest.mark.parametrize("what", ["exceptions", "processes", "files"])
def test_whatever_is_left_or_raised_is_wrong(what: str) -> None:
    found = row(seen("PASS", "PASS"), **{what: ["this"]})
    assert found.wrong and judge.troubles([found]) == [f"gloo 0 [a label]: {what}: this"]


def test_a_driver_that_grows_is_seen() -> None:
    steady = {"pid": 1, "memory": 100, "descriptors": 10}
    rows = [row(number=i, driver=steady) for i in range(300)]
    assert judge.grown(rows) == []
    rows[-1] = row(driver={**steady, "memory": 106})
    assert judge.grown(rows) == ["gloo: memory grew from 100 to 106"]


def test_orders_with_another_verdict_or_diagnosis_are_told() -> None:
    same = [row(seen("FAIL", "FAIL", reason="wrong-values: here")) for _ in range(2)]
    assert permutations.differing(same) == []
    assert permutations.differing([*same, row(seen("PASS", "FAIL"))])
    assert permutations.differing([*same, row(seen("FAIL", "FAIL", reason="deadlock: there"))])


# ---- what is left


def test_a_process_and_a_folder_that_were_left_are_found(tmp_path: Path) -> None:
    mark = f"tpcheck-run-{os.getpid()}"
    planted = Path("/dev/shm") / mark
    planted.mkdir()
    environment = {**os.environ, INSIDE: mark}
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], env=environment,
                               stdin=subprocess.PIPE)  # fmt: skip
    try:
        assert list(footprint.processes([mark])) == [process.pid]
        assert process.pid in footprint.descendants(os.getpid())
        assert list(footprint.alive([process.pid])) == [process.pid]
        assert footprint.folders([mark]) == [planted]
    finally:
        process.kill()
        process.communicate()
        planted.rmdir()
    assert footprint.processes([mark]) == footprint.alive([process.pid]) == {}
    assert footprint.folders([mark]) == []


def test_what_a_death_lost_is_found() -> None:
    printed = "FAIL  check_003 › output\n[gw0] [  1%] FAILED test_mixed.py::test_001\nPASS  check_2"
    assert deaths._found(printed) == {"check_003", "check_001"}


# ---- on ranks


def test_known_candidates_come_out_as_they_must(gloo: Engine) -> None:
    from tests.catalogue.torture.worker import played

    found = played(HARMLESS, Session(gloo))
    assert [one.verdict for one in found.seen] == ["PASS", "PASS", "FAIL"]
    assert not found.wrong


def test_the_twin_candidates_that_pose_as_one_another_are_seen(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.catalogue.torture.worker import played

    right, wrong = known.RIGHT["RowLinear"], known.WRONG["Unwritten"]
    monkeypatch.setattr(known, "FOLLOWERS", {"RowLinear": wrong, "Unwritten": right})
    found = played(HARMLESS, Session(gloo))
    assert [one.wrong for one in found.seen] == [None, "wrong FAIL", "wrong PASS"]
