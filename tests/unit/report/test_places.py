"""The line that a result points to: the cause's own, that of a rank, else that of the check."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.report.test_machine import FAILED, UNDECIDED
from tpcheck.case import Case
from tpcheck.causes.loaded import ComputedOtherwise, LoadedRows
from tpcheck.causes.reruns import RoundingOnly
from tpcheck.causes.several import Overwritten
from tpcheck.causes.structure import GivenUp
from tpcheck.causes.where import Subject
from tpcheck.event import Event
from tpcheck.evidence import Entered, Race, Raised, Scene, Stuck
from tpcheck.evidence.pictures import Collectives, Pictures
from tpcheck.report.places import place
from tpcheck.verdict import CheckResult, Counterexample, Diagnosis, Mismatch
from tpcheck.vocabulary import Access, Code, Impasse, Kind, Phase

MODEL = """
def forward(x):
    raise ValueError

@kernel
def scale(x):
    x += 1

wrong, right = checks()
for made in [1]:
    globals()["looped"] = made
"""
VALUES = Mismatch("y", Kind.OUTPUT, 0)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a checkout that was imported."""
    file = tmp_path / "code" / "model.py"
    file.parent.mkdir()
    file.write_text(MODEL)
    imported = types.ModuleType("model_of_a_test")
    imported.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "model_of_a_test", imported)
    return file


def failed(model: Path, *mismatches: Mismatch, cause: object = None) -> CheckResult:
    cause = cause or RoundingOnly(Subject(Kind.OUTPUT, "y"), 2.0)
    diagnosis = Diagnosis(Code.UNCLASSIFIED, cause)  # type: ignore[arg-type]
    found = Counterexample("7f3a91", Case(), list(mismatches or [VALUES]), diagnosis, "gloo")
    return replace(FAILED, counterexample=found, address=f"{model}::wrong")


def test_wrong_values_point_to_where_the_check_is_defined(model: Path) -> None:
    result = failed(model)
    assert place(result, model.parents[1]) == ("code/model.py", 9)
    assert place(replace(result, address=f"{model}::looped"), model.parent) == ("model.py", None)
    assert place(replace(result, address=None), model.parent) is None
    assert place(replace(UNDECIDED, address=f"{model}::right"), model.parent) == ("model.py", 9)
    assert place(result, model.parent / "other") is None
    unread = replace(UNDECIDED, address=str(model))
    assert place(unread, model.parent) == ("model.py", None), "it does not import"
    assert place(replace(unread, line=3), model.parent) == ("model.py", 3)


def test_a_mean_points_to_the_one_collective_that_takes_it(model: Path) -> None:
    def averaged(code: Code, *lines: int) -> CheckResult:
        at = [(n, "avg") for n in lines] + [(6, "sum")]
        events = [
            Event("all_reduce", op, (0, 1), "float32", (2,), 2, 8, Phase.FORWARD, f"model.py:{n}")
            for n, op in at
        ]
        result = failed(model)
        assert result.counterexample is not None
        diagnosis = replace(result.counterexample.diagnosis, code=code)
        found = replace(result.counterexample, diagnosis=diagnosis, trace={0: events, 1: events})
        return replace(result, counterexample=found)

    assert place(averaged(Code.AVERAGED_NOT_SUMMED, 3), model.parent) == ("model.py", 3)
    assert place(averaged(Code.AVERAGED_NOT_SUMMED, 3, 7), model.parent) == ("model.py", 9)
    assert place(averaged(Code.SUMMED_TWICE, 3), model.parent) == ("model.py", 9)


def raised(stack: str, **more: bool) -> Mismatch:
    scene = Scene(stack=stack, phase=Phase.FORWARD, **more)
    return Mismatch("exception", Kind.EXCEPTION, 0, detail=Raised("ValueError", "no", scene))


def test_an_exception_points_to_its_innermost_line_in_the_checkout(model: Path) -> None:
    other = model.parent / "site-packages" / "lib.py"
    stack = f'  File "{model}", line 7, in f\n  File "{model}", line 3, in forward\n'
    stack += f'  File "{other}", line 1, in g\n  File "/elsewhere/x.py", line 8, in h\n'
    assert place(failed(model, raised(stack)), model.parent) == ("model.py", 3)
    assert place(failed(model, raised(stack, consequence=True)), model.parent) == ("model.py", 9)
    assert place(failed(model, raised("no frames")), model.parent) == ("model.py", 9)


def test_a_rank_that_waits_points_to_where_it_is(model: Path) -> None:
    stack = "Thread 1 (most recent call first):\n"
    stack += f'  File "{model}", line 3 in forward\n  File "{model}", line 7 in f\n'
    stuck = Stuck(Impasse.TOO_LONG, scene=Scene(stack=stack))
    waits = Mismatch("rank", Kind.HANG, 0, detail=stuck)
    assert place(failed(model, waits), model.parent) == ("model.py", 3)


def test_of_ranks_that_wait_for_one_at_work_the_line_is_where_that_one_is(model: Path) -> None:
    details = [
        Stuck(Impasse.TOO_LONG, absent, scene=Scene(stack=f'  File "{model}", line {n} in f\n'))
        for n, absent in ((3, (1,)), (7, ()))
    ]
    hangs = [Mismatch("rank", Kind.HANG, r, detail=stuck) for r, stuck in enumerate(details)]
    found = failed(model, *hangs, cause=GivenUp(1, details[1], {0: "all_reduce", 1: None}))
    assert place(found, model.parent) == ("model.py", 7)


def test_of_ranks_that_part_the_line_is_where_they_do(model: Path) -> None:
    stack = f'  File "{model}", line 3 in backward\n'
    ways = Entered(0, "all_reduce", "model.py:7"), Entered(1, "all_reduce", "model.py:3")
    stuck = Stuck(Impasse.PEER_FINISHED, peer=1, parted=ways, scene=Scene(stack=stack))
    waits = Mismatch("rank", Kind.HANG, 0, detail=stuck)
    found = failed(model, waits, cause=GivenUp(0, stuck, {0: "all_reduce"}))
    assert place(found, model.parent) == ("model.py", 7)


def test_a_cause_that_names_its_line_comes_first(model: Path) -> None:
    stack = f'  File "{model}", line 3, in forward\n'
    cause = Overwritten("model.py:7", "all_reduce")
    assert place(failed(model, raised(stack), cause=cause), model.parent) == ("model.py", 7)
    elsewhere = Overwritten("other.py:7")
    assert place(failed(model, raised(stack), cause=elsewhere), model.parent) == ("model.py", 3)


def test_what_a_loader_left_points_to_the_loader(model: Path) -> None:
    loaded = LoadedRows("w", 1, 0, (0, 1), repeated=False)
    for cause, line in ((loaded, 2), (ComputedOtherwise("table", 1), 9)):
        result = failed(model, cause=cause)
        assert result.counterexample is not None
        pictures = Pictures((), None, Collectives((), {}), {"load()": "model.py:2"})
        found = replace(result.counterexample, pictures=pictures)
        assert place(replace(result, counterexample=found), model.parent) == ("model.py", line)


def test_of_two_files_of_one_name_neither_is_taken(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = model.parent / "twin" / "model.py"
    twin.parent.mkdir()
    twin.write_text("")
    imported = types.ModuleType("twin_of_a_test")
    imported.__file__ = str(twin)
    monkeypatch.setitem(sys.modules, "twin_of_a_test", imported)
    result = failed(model, cause=Overwritten("model.py:7"))
    assert place(result, model.parent) == ("model.py", 9)


def test_a_kernels_race_points_to_its_line(model: Path) -> None:
    race = Race("scale", 7, "x", 0, ((0, 0, 0), (1, 0, 0)), Access.STORE)
    result = failed(model, Mismatch("x", Kind.RACE, 0, detail=race))
    assert place(result, model.parent) == ("model.py", 7)
    unknown = replace(race, kernel="another")
    result = failed(model, Mismatch("x", Kind.RACE, 0, detail=unknown))
    assert place(result, model.parent) == ("model.py", 9)
