"""Hypotheses about several tensors of a case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.diagnosis.edits import CASE, DW, DX, OUT, Ranks, alone, examine, noise
from tpcheck import specs
from tpcheck.bounds.spread import Spread
from tpcheck.case import Case
from tpcheck.causes.several import (
    BranchAveraged,
    BranchRepeated,
    BranchUnsummed,
    Overwritten,
)
from tpcheck.causes.where import Subject
from tpcheck.diagnosis.facts import Local
from tpcheck.diagnosis.hypotheses.several import averaged_branch, overwritten
from tpcheck.event import Event
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Replicate
from tpcheck.protocol.problem import Target
from tpcheck.tensors.boundaries import Border
from tpcheck.verdict import Diagnosis, Mismatch
from tpcheck.vocabulary import End, Kind, Phase


def test_one_branch_that_is_not_summed_is_found_by_what_it_sends_back() -> None:
    mlp = {"batch": 1, "seq": 2, "hidden": 4, "intermediate": 8, "activation": "swiglu"}
    dims = mlp | {"norm": "none", "residual": False, "bias": False}

    def edit(ranks: Ranks, posed: Posed) -> None:
        gate = next(
            t
            for t in posed.problems[0].borders
            if t.name == Border(Phase.BACKWARD, "gate", 0, End.IN, "0").key
        )
        for rank, held in ranks.items():
            share = (rank + 1) / 10.0  # of four terms that add up to the whole
            held[DX] = held[DX] - (1 - share) * gate.value

    named = examine(edit, spec=specs.mlp(), case=Case(dims=dims, mesh={"tp": 4}))
    cause = BranchUnsummed(Subject(Kind.INPUT_GRAD, "x"), "gate")
    assert (named.code, named.cause) == ("missing-all-reduce", cause)


LORA = {"batch": 2, "seq": 3, "in_features": 8, "out_features": 4, "rank": 2, "scale": 0.5}


def of_adapter(share: Callable[[int], float]) -> Diagnosis:
    """Each rank has this many times what the adapter gives besides what is right."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        borders = {Border.of(t.name): t.value for t in posed.problems[0].borders}
        (given,) = (
            value
            for border, value in borders.items()
            if (border.phase, border.module, border.side) == (Phase.FORWARD, "adapter", End.OUT)
        )
        for rank, held in ranks.items():
            held[OUT] = held[OUT] + share(rank) * given

    case = Case(dims=LORA | {"merged": False, "bias": True}, mesh={"tp": 4})
    return examine(edit, spec=specs.lora_row_linear(), case=case)


def test_a_branch_of_which_each_rank_adds_its_own_term_is_found_by_what_it_gives() -> None:
    named = of_adapter(lambda rank: (rank + 1) / 10.0 - 1)  # of four that add up to the whole
    cause = BranchUnsummed(Subject(Kind.OUTPUT, "output"), "adapter")
    assert (named.code, named.cause) == ("missing-all-reduce", cause)
    assert of_adapter(lambda rank: rank / 10.0 - 1).code == "unclassified", "these do not"


def test_a_branch_that_is_summed_once_more_is_found_by_what_it_gives() -> None:
    named = of_adapter(lambda rank: 3.0)
    cause = BranchRepeated(Subject(Kind.OUTPUT, "output"), "adapter", 3)
    assert (named.code, named.cause) == ("summed-twice", cause)
    assert of_adapter(lambda rank: 2.5).code == "unclassified"


def test_a_branch_whose_sum_is_divided_is_found_by_what_is_left_of_it() -> None:
    named = of_adapter(lambda rank: 1 / 4 - 1)
    cause = BranchAveraged(Subject(Kind.OUTPUT, "output"), "adapter", 4)
    assert (named.code, named.cause) == ("averaged-not-summed", cause)
    for share in (1 / 2 - 1, -1.0, -2.0):  # that all ranks have alike: nothing is missing
        assert of_adapter(lambda rank, share=share: share).code == "unclassified"


@pytest.mark.parametrize(("left", "named"), [(1 / 2, True), (1 / 3, False)])
def test_a_multiple_that_wide_bounds_hold_is_not_the_one(left: float, named: bool) -> None:
    """Of what a branch adds a half would be left by a mean over two ranks."""
    part = torch.linspace(-1, 1, 8, dtype=torch.float64)
    spread = Spread(torch.full_like(part, 0.007), 9, 99)
    border = Border(Phase.FORWARD, "adapter", 0, End.OUT, "0").key
    given = Target(Kind.OUTPUT, border, Replicate(), torch.bfloat16, part, spread)
    problem = SimpleNamespace(borders=[given])
    case, held = Case(mesh={"tp": 2}), (2 + left) * part
    target = replace(given, name="output", value=3 * part)
    of_ranks = (dict.fromkeys((0, 1), t) for t in (held, 3 * part, spread.sigma))
    local = Local(target, case, [0, 1], *of_ranks)
    facts: Any = SimpleNamespace(case=case, posed=SimpleNamespace(problems=[problem]))
    assert local.wrong() and (averaged_branch(facts, local) is not None) is named


@pytest.mark.parametrize(("factor", "code"), [(2.0, "summed-twice"), (0.5, "averaged-not-summed")])
def test_gradients_that_cannot_be_laid_side_by_side_still_have_a_common_factor(
    factor: float, code: str
) -> None:
    case = replace(CASE, mesh={"dp": 2, "tp": 2})
    values = [0.3, -1.7, 2.4, 0.9, -0.2, 5.5]
    wrong = [
        Mismatch(f"w{i // 2}", Kind.PARAM_GRAD, i % 2, (0,), v, factor * v, 1.0, 0.1)
        for i, v in enumerate(values)
    ]
    odd = replace(wrong[3], actual=1.0)
    for mismatches, named in (
        (wrong, code),
        ([*wrong[:3], odd, *wrong[4:]], "unclassified"),
        (wrong[:4], "unclassified"),
    ):
        assert alone(*mismatches, case=case).code == named


def test_what_was_written_over_before_backward_is_a_stale_buffer() -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        noise(DW)(ranks, posed)
        ranks[1]["overwritten/mine.py:3"] = torch.zeros(1)

    named = examine(edit)
    assert (named.code, named.cause) == ("stale-buffer", Overwritten("mine.py:3"))


@pytest.mark.parametrize(
    ("phase", "code"), [(Phase.FORWARD, "stale-buffer"), (Phase.STEP, "unclassified")]
)
def test_what_a_step_writes_over_backward_has_read(phase: Phase, code: str) -> None:
    event = Event("broadcast", None, (0, 1), "float64", (2,), 2, 16, phase, "a.py:3", "", True)
    local: Any = SimpleNamespace(kind=Kind.PARAM_GRAD)
    facts: Any = SimpleNamespace(again=SimpleNamespace(trace=[[event]]), dumps={})
    named = overwritten(facts, local)
    assert (named.code if named else "unclassified") == code


@pytest.mark.parametrize(("times", "code"), [(1.0, "summed-twice"), (0.7, "unclassified")])
def test_an_input_that_is_as_small_as_the_bounds_is_not_any_multiple_of_it(
    times: float, code: str
) -> None:
    """Of one element: what is near it fits within doubled bounds."""

    def inputs(case: Case, draw: Any) -> dict[str, Tensor]:
        return {"x": torch.full((1, 1, 1), 0.1)}

    def edit(ranks: Ranks, posed: Posed) -> None:
        for held in ranks.values():
            held[OUT] = (held[OUT].double() + times * 0.1).bfloat16()

    spec = replace(specs.column_linear(), inputs=inputs)
    dims = {"batch": 1, "seq": 1, "in_features": 1, "out_features": 2, "bias": True}
    named = examine(edit, spec=spec, case=Case(dims=dims, mesh={"tp": 2}, dtype="bfloat16"))
    assert named.code == code, named
