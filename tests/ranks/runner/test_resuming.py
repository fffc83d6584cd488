"""Ranks that go on with training that others have saved, of their own or of another degree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fixtures.parallel.checkpoint import TrainingCheckpoint
from properties import checkpoints, training
from tests import candidates
from tpcheck import Check
from tpcheck.case import Case
from tpcheck.causes.loaded import LoadedScaled
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind

SP = checkpoints.mlp_sp_resumed
DIMS = {"batch": 2, "seq": 4, "hidden": 4, "intermediate": 8, "activation": "gelu"}
CASE = Case(dims=DIMS | {"norm": "layer", "residual": True, "bias": True}, mesh={"tp": 2}, seed=3)


@pytest.mark.parametrize("saved_at", [0, 1, 4])
def test_what_the_first_step_left_is_what_the_others_begin_from(
    gloo: Engine, saved_at: int
) -> None:
    result = Runner(SP, gloo).run(replace(CASE, saved_at=saved_at))
    assert result.verdict is Verdict.PASS, result.mismatches
    # all that is to be compared was: the state that was loaded, and the step after it
    assert all(own.complete for own in result.judged.values())
    assert {Kind.OPTIMIZER_STATE, Kind.OUTPUT, Kind.PARAM_GRAD} <= {k for k, _ in result.judged}


def first_wrong(result: CaseResult) -> tuple[int, set[Kind]]:
    step = min(m.name.at.step for m in result.mismatches)
    return step, {m.kind for m in result.mismatches if m.name.at.step == step}


def test_a_parameter_that_no_loader_fills_is_nan(gloo: Engine) -> None:
    def load(module: Any, optimizer: Any, folder: Path) -> None:
        kept = module.down.weight.detach().clone()
        TrainingCheckpoint().load(module, optimizer, folder)
        with torch.no_grad():
            module.down.weight.copy_(kept)

    result = Runner(replace(SP, load=load), gloo).run(CASE)
    assert first_wrong(result) == (0, {Kind.PARAM})
    assert {m.tensor for m in result.mismatches if m.name.at.step == 0} == {"down.weight"}


def test_a_number_that_was_loaded_as_another_is_said_to_be(gloo: Engine) -> None:
    def load(module: Any, optimizer: Any, folder: Path) -> None:
        TrainingCheckpoint().load(module, optimizer, folder)
        for state in optimizer.state.values():
            state["step"] += 1

    runner = Runner(replace(checkpoints.mlp_resumed, load=load), gloo)
    found = examine_failure(runner, runner.run(CASE))
    cause = found.diagnosis.cause
    assert isinstance(cause, LoadedScaled) and cause.parameter.endswith(".step")


def test_an_optimizer_that_begins_anew_shows_before_its_next_step(gloo: Engine) -> None:
    def load(module: Any, optimizer: Any, folder: Path) -> None:
        TrainingCheckpoint().load(module, optimizer, folder)
        optimizer.state.clear()

    result = Runner(replace(SP, load=load), gloo).run(replace(CASE, saved_at=4))
    assert first_wrong(result) == (0, {Kind.OPTIMIZER_STATE})


def test_data_of_several_coordinates_are_refused_where_gradients_are_not_shared(
    gloo: Engine,
) -> None:
    with pytest.raises(InvalidArgument, match="each dp coordinate leaves other parameters"):
        Runner(SP, gloo).run(replace(CASE, mesh={"dp": 2, "tp": 2}))


SAVING: dict[str, Any] = {"save": SP.save, "load": SP.load, "resumes": True}


@pytest.mark.parametrize(
    ("check", "edit", "why"),
    [
        (SP, {"save": None}, "nothing is saved"),
        (SP, {"reads": 1.0}, "is not judged"),
        (SP, {"resumes": 1}, "give True or False"),
        (candidates.check(candidates.Row), SAVING, "no steps to go on with"),
        (training.mlp_main_adamw, SAVING, "the copies of Training"),
        (training.mlp_scaled_adamw, SAVING, "a scaled loss"),
    ],
)
def test_what_cannot_be_resumed_is_refused(check: Check, edit: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        replace(check, **edit)
