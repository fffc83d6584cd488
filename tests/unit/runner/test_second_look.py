"""Which cases are judged again under closer bounds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tpcheck import Replicate
from tpcheck.bounds.spread import Spread
from tpcheck.case import Case
from tpcheck.evidence import Absent, Values
from tpcheck.oracle.effort import CLOSER, CONFIRM, FLOOR, SCREEN, Effort
from tpcheck.oracle.pose import Posed
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Problem, Target
from tpcheck.protocol.returned import file_of
from tpcheck.runner.second_look import CLEAR, doubtful, look_again, screened
from tpcheck.tensors.digest import NOTHING
from tpcheck.tensors.names import Key
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

NONE = torch.zeros(2, dtype=torch.float64)


def suspected(dtype: str, *, integer: bool, error: float, bound: float) -> tuple[Posed, RankReport]:
    exact = NONE.long() if integer else None
    kind = torch.int64 if integer else getattr(torch, dtype)
    target = Target(Kind.OUTPUT, "y", Replicate(), kind, NONE, Spread(NONE, 1, 1), exact=exact)
    posed = Posed(Case(dtype=dtype), [Problem(targets=[target])], {}, {}, {})
    apart = 65504.0 if math.isinf(error) else error  # what overflowed is as wrong as that
    wrong = Mismatch("y", Kind.OUTPUT, 0, (0,), 0.0, error, apart, bound)
    return posed, RankReport(0, [wrong], suspects={(Kind.OUTPUT, "y"): Replicate()})


@pytest.mark.parametrize(
    ("dtype", "integer", "error", "bound", "expected"),
    [
        ("bfloat16", False, 1.0, 0.1, True),
        ("float64", False, 0.9 * CLEAR, 1.0, True),
        ("float64", False, 1.1 * CLEAR, 1.0, False),
        ("float64", False, 1.0, 0.0, False),
        ("float64", True, 1.0, 0.0, True),  # few runs may not have met a tie
    ],
)
def test_closer_bounds_may_clear_it(
    dtype: str, integer: bool, error: float, bound: float, expected: bool
) -> None:
    posed, report = suspected(dtype, integer=integer, error=error, bound=bound)
    assert doubtful(posed, [report]) is expected


def test_what_was_looked_at_closely_is_not_looked_at_again() -> None:
    posed, report = suspected("float64", integer=True, error=1.0, bound=0.0)
    for effort in (CLOSER, CONFIRM):
        assert not doubtful(replace(posed, effort=effort), [report])


@pytest.mark.parametrize(("kept", "expected"), [(True, True), (False, False)])
def test_state_that_another_rank_keeps_is_not_what_later_steps_follow_from(
    kept: bool, expected: bool
) -> None:
    posed, report = suspected("bfloat16", integer=False, error=1.0, bound=0.1)
    (first,) = report.mismatches
    report.mismatches = [
        Mismatch("w.exp_avg", Kind.OPTIMIZER_STATE, 0, detail=Absent()),
        replace(first, tensor="y@step2"),
    ]
    report.suspects = {(Kind.OUTPUT, "y@step2"): Replicate()}
    other = RankReport(1)
    other.digests = {(Kind.OPTIMIZER_STATE, "w.exp_avg"): "7" if kept else NOTHING}
    assert doubtful(posed, [report, other]) is expected


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda file: None])
def test_without_the_tensors_that_a_rank_kept_its_evidence_stands(
    tmp_path: Path, put: Callable[[Path], object]
) -> None:
    posed, report = suspected("float32", integer=False, error=1.0, bound=0.1)
    found = list(report.mismatches)
    put(file_of(tmp_path, report.rank))
    look_again(lambda effort, steps: replace(posed, effort=effort), [report], tmp_path)
    assert report.mismatches == found


def looked_at(
    folder: Path,
    clears: Callable[[Effort], bool],
    *,
    integer: bool = False,
    dtype: str = "float32",
    off: float = 5.0,
) -> tuple[list[Effort], RankReport]:
    """The efforts that were made over one suspect, and what has become of the report.

    Args:
        clears: whether the suspect is within the bound of one.
        off: how far off the suspect is.
    """
    made: list[Effort] = []
    posed, report = suspected(dtype, integer=integer, error=off, bound=1.0)
    actual = NONE.long() + 5 if integer else NONE.to(getattr(torch, dtype)) + off
    save_file({str(Key(Kind.OUTPUT, "y")): actual}, file_of(folder, report.rank))

    def closely(effort: Effort, steps: int) -> Posed:
        assert steps == 1
        made.append(effort)
        (target,) = posed.problems[0].targets
        spread = Spread(NONE + (10.0 if clears(effort) else 1e-9), 100, 100)
        problem = replace(posed.problems[0], targets=[replace(target, spread=spread)])
        return replace(posed, problems=[problem], effort=effort)

    assert look_again(closely, [report], folder).effort is made[-1]
    return made, report


@pytest.mark.parametrize(
    ("closer", "confirm", "integer", "made"),
    [
        (False, False, False, [CLOSER]),
        (False, True, False, [CLOSER]),  # more runs are not asked
        (True, True, False, [CLOSER, CONFIRM]),
        (True, False, False, [CLOSER, CONFIRM]),
        (False, False, True, [CLOSER, CONFIRM]),
    ],
)
def test_many_runs_are_made_only_where_fewer_clear_one(
    tmp_path: Path, closer: bool, confirm: bool, integer: bool, made: list[Effort]
) -> None:
    def clears(effort: Effort) -> bool:
        return closer if effort is CLOSER else confirm

    efforts, report = looked_at(tmp_path, clears, integer=integer)
    assert efforts == made
    right = made[-1] is CONFIRM and confirm
    assert [m.tensor for m in report.mismatches] == ([] if right else ["y"])
    assert (report.usage > 0) is right


@pytest.mark.parametrize("other", [None, "float32"])
def test_the_first_look_says_whether_a_dtype_is_wrong(tmp_path: Path, other: str | None) -> None:
    posed, report = suspected("bfloat16", integer=False, error=5.0, bound=1.0)
    report.mismatches = [replace(report.mismatches[0], detail=Values(2, 2, dtype=other))]
    save_file({str(Key(Kind.OUTPUT, "y")): NONE.float() + 5}, file_of(tmp_path, report.rank))
    (target,) = posed.problems[0].targets
    wide = replace(target, spread=Spread(NONE + 10.0, 100, 100))
    posed = replace(posed, problems=[replace(posed.problems[0], targets=[wide])])
    look_again(lambda effort, steps: replace(posed, effort=effort), [report], tmp_path)
    wrong = [Values(0, 2, dtype="float32", expected_dtype="bfloat16")] if other else []
    assert [m.detail for m in report.mismatches] == wrong


@pytest.mark.parametrize("off", [math.inf, math.nan])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_few_runs_may_not_have_met_what_overflows_in_float16(
    tmp_path: Path, dtype: str, off: float
) -> None:
    efforts, report = looked_at(tmp_path, lambda effort: False, dtype=dtype, off=off)
    assert efforts == ([CLOSER, CONFIRM] if dtype == "float16" else [CLOSER])
    assert [m.tensor for m in report.mismatches] == ["y"]


@pytest.mark.parametrize(("bound", "left"), [(10.0, []), (1e-9, ["y"])])
def test_what_is_outside_of_the_least_bounds_is_judged_under_those_of_few_runs(
    tmp_path: Path, bound: float, left: list[str]
) -> None:
    posed, report = suspected("float32", integer=False, error=5.0, bound=1.0)
    save_file({str(Key(Kind.OUTPUT, "y")): NONE.float() + 5}, file_of(tmp_path, report.rank))
    made: list[Effort] = []

    def closely(effort: Effort) -> Posed:
        made.append(effort)
        (target,) = posed.problems[0].targets
        target = replace(target, spread=Spread(NONE + bound, 100, 100))
        return replace(posed, problems=[replace(posed.problems[0], targets=[target])])

    first = replace(posed, effort=FLOOR, closely=closely)
    assert screened(first, [report], tmp_path).effort is SCREEN
    assert made == [SCREEN] and [m.tensor for m in report.mismatches] == left


def test_a_gradient_that_no_noisy_run_has_either_is_no_evidence(tmp_path: Path) -> None:
    posed, report = suspected("float32", integer=False, error=5.0, bound=1.0)
    report.suspects, report.mismatches = {}, [Mismatch("y", Kind.OUTPUT, 0, detail=Absent())]
    for unused in (False, True):
        (target,) = posed.problems[0].targets
        problem = replace(posed.problems[0], targets=[replace(target, unused=unused)])
        again = replace(posed, problems=[problem])
        first = replace(posed, effort=FLOOR, closely=lambda effort, again=again: again)
        screened(first, [report], tmp_path)
        assert bool(report.mismatches) is not unused


def test_what_is_within_the_least_bounds_is_not_judged_again(tmp_path: Path) -> None:
    posed, report = suspected("float32", integer=False, error=5.0, bound=1.0)
    report.mismatches = []
    first = replace(posed, effort=FLOOR)  # it can't be posed again
    assert screened(first, [report], tmp_path) is first


def trained(
    folder: Path,
    errors: Mapping[Any, float],
    clears: Callable[[Effort, int], bool],
    until: float = math.inf,
) -> tuple[list[Any], list[int]]:
    """What was asked of suspects in these steps of a case, this many times off their bounds, and
    which are left. A step may be given with the name of the tensor, an output's, and its kind."""
    asked: list[tuple[Effort, int]] = []
    posed, report = suspected("float32", integer=False, error=5.0, bound=1.0)
    (target,), (first,) = posed.problems[0].targets, report.mismatches
    keys = [key if isinstance(key, tuple) else (key,) for key in errors]
    each = [(*key, *("y", Kind.OUTPUT)[len(key) - 1 :]) for key in keys]
    names = {f"{base}@step{step}": (step, kind) for step, base, kind in each}
    report.mismatches = [
        replace(first, tensor=name, kind=kind, error=error)
        for (name, (_, kind)), error in zip(names.items(), errors.values(), strict=True)
    ]
    (entry,) = report.suspects.values()
    report.suspects = {(kind, name): entry for name, (_, kind) in names.items()}
    kept = {str(Key(kind, name)): NONE.float() + 5 for name, (_, kind) in names.items()}
    save_file(kept, file_of(folder, report.rank))

    def closely(effort: Effort, steps: int) -> Posed:
        asked.append((effort, steps))
        known = []
        for name, (step, kind) in names.items():
            wide = Spread(NONE + (10.0 if clears(effort, step) else 1e-9), 100, 100)
            known += [replace(target, name=name, kind=kind, spread=wide)] if step <= steps else []
        return replace(posed, problems=[replace(posed.problems[0], targets=known)], effort=effort)

    if not doubtful(posed, [report], until):
        return [], [mismatch.name.at.step + 1 for mismatch in report.mismatches]
    look_again(closely, [report], folder, until)
    return asked, [mismatch.name.at.step + 1 for mismatch in report.mismatches]


def test_the_steps_up_to_the_first_that_is_far_off_are_looked_at_alone(tmp_path: Path) -> None:
    asked, left = trained(tmp_path, {2: 1.5, 5: 9.0, 7: 9.0}, lambda effort, step: False)
    assert (asked, left) == ([(CLOSER, 5)], [2, 5, 7]), "what follows stays"
    asked, left = trained(tmp_path, {2: 1.5, 5: 1.5}, lambda effort, step: False)
    assert (asked, left) == ([(CLOSER, 5)], [2, 5]), "none is"


def test_all_are_looked_at_where_those_are_right(tmp_path: Path) -> None:
    asked, left = trained(tmp_path, {2: 1.5, 5: 9.0, 12: 1.5}, lambda effort, step: True)
    looked = [(effort, steps) for steps in (5, 12) for effort in (CLOSER, CONFIRM)]
    assert (asked, left) == (looked, [])
    asked, left = trained(tmp_path, {2: 1.5, 5: 9.0, 12: 1.5}, lambda effort, step: step < 12)
    assert (asked, left) == ([*looked[:2], (CLOSER, 12)], [12])


def test_what_stays_far_off_from_an_early_step_on_does_not_hide_a_later_one(tmp_path: Path) -> None:
    """As a parameter does by a gradient near zero whose sign is another one."""
    first, later = [(2, "y"), (3, "y")], [(7, "y"), (7, "z"), (7, "w")]
    errors = {(*key, Kind.PARAM): 9.0 for key in first + later}
    asked, left = trained(tmp_path, errors, lambda effort, step: step < 7)
    assert asked == [(CLOSER, 7), (CONFIRM, 3)]
    assert left == [7, 7, 7]


@pytest.mark.parametrize("kind", [Kind.PARAM_GRAD, Kind.GRAD_NORM, Kind.OUTPUT])
def test_a_step_that_computes_something_wrong_is_looked_at_before_what_follows(
    tmp_path: Path, kind: Kind
) -> None:
    later = [(7, "y"), (7, "z"), (7, "w")]
    errors = {(2, "v", Kind.PARAM): 9.0, (6, "x", kind): 9.0}
    errors |= {(*key, Kind.PARAM): 9.0 for key in later}
    asked, left = trained(tmp_path, errors, lambda effort, step: step == 2)
    assert asked[0] == (CLOSER, 6)
    assert left == [6, 7, 7, 7]


def test_what_is_cleared_before_a_step_that_stays_wrong_takes_many_runs(tmp_path: Path) -> None:
    """Where it begins depends on it."""
    errors = {2: 1.5, 3: 1.5, 5: 9.0}
    asked, left = trained(tmp_path, errors, lambda effort, step: step == 2)
    assert (asked, left) == ([(CLOSER, 5), (CONFIRM, 2)], [3, 5])
    asked, left = trained(tmp_path, errors, lambda effort, step: step == 2 and effort is CLOSER)
    assert (asked, left) == ([(CLOSER, 5), (CONFIRM, 2)], [2, 3, 5])


def test_what_follows_from_replicas_that_differ_is_not_looked_at(tmp_path: Path) -> None:
    """Steps are counted from 0 there, and from 1 in names."""
    errors = {2: 1.5, 5: 9.0, 7: 9.0}
    for until, looked, stays in (
        (0.0, [], [2, 5, 7]),
        (1.0, [(CLOSER, 2), (CONFIRM, 2)], [5, 7]),
        (5.0, [(CLOSER, 5), (CONFIRM, 2)], [5, 7]),
    ):
        asked, left = trained(tmp_path, errors, lambda effort, step: step == 2, until)
        assert (asked, left) == (looked, stays)
