"""Cases are posed once, the next one ahead, with whatever goes wrong kept for its turn."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.candidates import CASE
from tpcheck import Training, specs
from tpcheck.case import Case
from tpcheck.cli import signals
from tpcheck.errors import CaseError, Interrupted
from tpcheck.oracle.effort import CLOSER, CONFIRM, SCREEN, Effort
from tpcheck.oracle.pose import Posed
from tpcheck.process.aspects import Left
from tpcheck.runner import posing
from tpcheck.runner.posing import FirstSteps, Posing, first_steps
from tpcheck.tensors.names import Pass

OTHER = replace(CASE, seed=CASE.seed + 1)
TRAINED = replace(specs.mlp(), training=Training(torch.optim.SGD, steps=4))
CHANGED = Left("torch.get_default_dtype", restored=True)


class Fake:
    """Poses by name, and says what it was asked for."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.asked: list[tuple[Case, Effort]] = []
        self.error = error
        self.posing = Posing(self.pose, self.restore)

    def pose(self, case: Case, effort: Effort = SCREEN) -> Posed:
        self.asked.append((case, effort))
        if self.error is not None:
            raise self.error
        return cast(
            Any, SimpleNamespace(case=case, effort=effort, closely=partial(self.pose, case))
        )

    def restore(self) -> list[Left]:
        return [CHANGED]


def test_a_case_that_was_prepared_is_posed_once() -> None:
    fake = Fake()
    fake.posing.prepare(CASE)
    fake.posing.prepare(CASE)
    posed, left = fake.posing.take(CASE)
    assert posed.case == CASE and left == [CHANGED]
    assert fake.asked == [(CASE, SCREEN)]


def test_a_case_that_runs_again_is_not_posed_again_and_has_changed_nothing_more() -> None:
    fake = Fake()
    first, _ = fake.posing.take(CASE)
    fake.posing.prepare(OTHER)
    assert fake.posing.take(CASE) == (first, [])
    assert fake.posing.take(OTHER)[1] == [CHANGED]
    assert fake.asked == [(CASE, SCREEN), (OTHER, SCREEN)]


def test_an_older_case_is_posed_anew() -> None:
    fake = Fake()
    for case in (CASE, OTHER, CASE):
        assert fake.posing.take(case)[0].case == case
    assert [case for case, _ in fake.asked] == [CASE, OTHER, CASE]


def test_another_case_than_the_one_prepared_is_posed_in_its_turn() -> None:
    fake = Fake()
    fake.posing.prepare(CASE)
    assert fake.posing.take(OTHER)[0].case == OTHER
    assert fake.posing.take(CASE)[0].case == CASE
    assert [case for case, _ in fake.asked] == [CASE, OTHER]


def test_a_case_is_looked_at_closely_once() -> None:
    fake = Fake()
    one, other = fake.pose(CASE), fake.pose(OTHER)
    assert fake.posing.closely(one, CLOSER) is fake.posing.closely(one, CLOSER)
    assert fake.posing.closely(one, CONFIRM).effort is CONFIRM
    assert fake.posing.closely(one, CLOSER) is fake.posing.closely(one, CONFIRM)
    assert fake.posing.closely(other, CLOSER).case == OTHER
    assert fake.asked[2:] == [(CASE, CLOSER), (CASE, CONFIRM), (OTHER, CLOSER)]


def test_what_goes_wrong_is_raised_in_its_turn() -> None:
    fake = Fake(CaseError("not this one"))
    fake.posing.prepare(CASE)
    with pytest.raises(CaseError, match="not this one"):
        fake.posing.take(CASE)


def test_an_interrupt_is_not_kept() -> None:
    fake = Fake(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        fake.posing.prepare(CASE)
    fake.error = None
    assert fake.posing.take(CASE)[0].case == CASE


def test_an_interrupt_of_the_reference_s_own_is_kept_for_its_turn_too() -> None:
    fake = Fake(KeyboardInterrupt())
    with signals.heard():
        fake.posing.prepare(CASE)
        with pytest.raises(KeyboardInterrupt):
            fake.posing.take(CASE)


def test_an_interrupt_of_a_signal_is_not_kept() -> None:
    fake = Fake(Interrupted())
    with signals.heard(), pytest.raises(Interrupted):
        fake.posing.prepare(CASE)


def steps_of(spec: Any) -> int:
    steps: int = spec.training.steps
    return steps


def test_the_first_steps_that_decided_are_those_that_explain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[int, Effort, Pass | None]] = []

    def pose(spec: Any, case: Case, effort: Effort, *, watch: Pass | None, **_: Any) -> Posed:
        made.append((steps_of(spec), effort, watch))
        again = partial(pose, spec, case, watch=watch)
        fields = {"case": case, "effort": effort, "closely": again}
        return cast(Any, SimpleNamespace(**fields, problems=[SimpleNamespace(ones=False)]))

    monkeypatch.setattr(posing, "pose", pose)
    first = FirstSteps(TRAINED)
    posed = cast(Any, SimpleNamespace(case=CASE, problems=[SimpleNamespace(ones=False)]))
    closer = first.closely(posed, CLOSER, 2, 1.0)
    last = Pass(0, 1)
    short = first_steps(TRAINED, 2)
    assert made == [(2, CLOSER, last)] and first.watched(short, CASE, CLOSER, last) is closer
    assert first.watched(short, CASE, CLOSER, None) is closer, "boundaries are there, too"
    for other in (
        (short, OTHER, CLOSER, last),
        (short, CASE, CONFIRM, last),
        (short, CASE, CLOSER, Pass(1, 1)),
        (TRAINED, CASE, CLOSER, last),
        (first_steps(TRAINED, 1), CASE, CLOSER, Pass(0, 0)),
    ):
        assert first.watched(*other) is not closer
        assert made.pop() == (steps_of(other[0]), *other[2:])
    confirmed = first.closely(posed, CONFIRM, 2, 1.0)
    assert first.watched(short, CASE, CONFIRM, last) is confirmed
    assert first.watched(short, CASE, CLOSER, last) is confirmed, "within closer bounds, too"
    assert first.closely(posed, CLOSER, 2, 1.0) is confirmed and len(made) == 2


def test_of_longer_training_that_is_known_closer_bounds_are_made_where_they_take_fewer_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONFIRM in float32 takes 48 runs, 22 of them beside CLOSER's."""
    made: list[tuple[int, Effort]] = []

    def pose(spec: Any, case: Case, effort: Effort, **_: Any) -> Posed:
        made.append((steps_of(spec), effort))
        fields = {"case": case, "effort": effort, "closely": partial(pose, spec, case)}
        return cast(Any, SimpleNamespace(**fields, problems=[SimpleNamespace(ones=False)]))

    monkeypatch.setattr(posing, "pose", pose)
    case = replace(CASE, dtype="float32")
    posed = cast(Any, SimpleNamespace(case=case, problems=[SimpleNamespace(ones=False)]))
    first = FirstSteps(TRAINED)
    seven = first.closely(posed, CLOSER, 7, 1.0)
    assert first.closely(posed, CLOSER, 3, 1.0) is seven, "it has these steps"
    first.closely(posed, CONFIRM, 3, 1.0)
    assert made == [(7, CLOSER), (3, CONFIRM)]
    assert first.watched(first_steps(TRAINED, 7), case, CLOSER, Pass(0, 6)) is seven, "it is kept"
    more = first.closely(posed, CONFIRM, 4, 1.0)
    assert made == [(7, CLOSER), (3, CONFIRM), (7, CONFIRM)]
    assert first.watched(first_steps(TRAINED, 7), case, CLOSER, Pass(0, 6)) is more
    ones = cast(Any, SimpleNamespace(case=case, problems=[SimpleNamespace(ones=True)]))
    assert first.closely(ones, CLOSER, 2, 1.0) is not more, "it has other cotangents"
