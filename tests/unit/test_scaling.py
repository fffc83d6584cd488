"""Steps under a loss that is scaled: which are left out, and how the scale goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.unit.test_training import CASE, adamw, halved, spec, values
from tpcheck import Norm, Scaling
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.overflow import draw_overflow
from tpcheck.oracle.pose import Posed, pose
from tpcheck.oracle.reference import build_reference
from tpcheck.protocol.scaling import SCALE
from tpcheck.tensors.names import InPass
from tpcheck.vocabulary import Kind


@pytest.mark.parametrize(
    "given",
    [
        {"initial": 0.0},
        {"initial": 3.0},
        {"growth": -2.0},
        {"growth": 0.5},
        {"backoff": 2.0},
        {"backoff": 0.3},
        {"backoff": True},
        {"interval": 0},
    ],
)
def test_what_no_scaling_is_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=rf"Scaling\({next(iter(given))}="):
        Scaling(**given)


def overflowing(step: int | None, **options: Any) -> Posed:
    """A case in which a gradient of this step is infinite, or none."""
    asked = spec(adamw, scaling=Scaling(), **options)
    for seed in range(200):
        posed = pose(asked, replace(CASE, seed=seed))
        due = posed.problems[0].overflow
        if (None if due is None else due.step) == step:
            return posed
    raise AssertionError("no seed")


@pytest.mark.parametrize("norm", [None, Norm(most=(0.5,))])
def test_without_an_infinite_gradient_the_scale_changes_nothing_but_itself(
    norm: Norm | None,
) -> None:
    posed = overflowing(None, norm=norm)
    plain = pose(spec(adamw, norm=norm), posed.case)
    others = {(t.kind, t.name): t.value for t in plain.problems[0].targets}
    scales = []
    for target in posed.problems[0].targets:
        if InPass.parse(target.name).base == SCALE:
            scales.append(float(target.value))
        else:
            assert torch.equal(target.value, others.pop((target.kind, target.name))), target.name
    assert not others
    assert scales == [256.0, 512.0, 512.0]  # two steps in a row


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_step_with_an_infinite_gradient_is_left_out(step: int) -> None:
    posed = overflowing(step, schedule=halved)
    before = posed.problems[0].params
    if step:
        before = values(posed, Kind.PARAM, step - 1)
    for name, left in values(posed, Kind.PARAM, step).items():
        assert torch.equal(left, before[name].double()), name
    gradients = values(posed, Kind.PARAM_GRAD, step)
    assert all(bool(g.isfinite().all()) for g in gradients.values()), "it is put there later"
    kept = values(posed, Kind.OPTIMIZER_STATE, step)
    assert float(kept[SCALE]) == (512.0 if step == 2 else 256.0) / 2
    assert {name for name in kept if name != SCALE} == (
        set() if step == 0 else values(posed, Kind.OPTIMIZER_STATE, step - 1).keys() - {SCALE}
    )
    if step < 2:
        after = values(posed, Kind.PARAM, step + 1)
        assert not any(torch.equal(after[name], t) for name, t in before.items())


def test_an_infinite_gradient_is_in_every_step_and_of_every_parameter() -> None:
    asked = spec(adamw, scaling=Scaling())
    cases = [replace(CASE, seed=seed) for seed in range(60)]
    found = [draw_overflow(asked, case, build_reference(asked, case)) for case in cases]
    assert found[:4] == [pose(asked, case).problems[0].overflow for case in cases[:4]]
    assert {None if due is None else due.step for due in found} == {None, 0, 1, 2}
    assert {due.name for due in found if due} == pose(asked, CASE).problems[0].params.keys()


@pytest.mark.parametrize("mesh", [{"tp": 2}, {"dp": 2, "tp": 2}])
def test_what_may_overflow_by_itself_is_compared_up_to_there(mesh: dict[str, int]) -> None:
    large = spec(adamw, scaling=Scaling(initial=2.0**15), norm=Norm())
    case = replace(CASE, mesh=mesh)
    exact, low = pose(large, case), pose(large, replace(case, dtype="float16"))
    assert any(t.kind is Kind.PARAM for t in exact.problems[0].targets)
    for problem in low.problems:
        known = {(t.kind, InPass.parse(t.name).at.step) for t in problem.targets}
        assert known == {(Kind.OUTPUT, 0), (Kind.INPUT_GRAD, 0), (Kind.PARAM_GRAD, 0)}
