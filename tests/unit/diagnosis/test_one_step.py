"""A later step of training, asked about as if it were the case's only one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.diagnosis.edits import Edit, Ranks, dumps_of, examine, expected
from tests.unit.test_training import CASE, adamw, spec, values
from tpcheck import Norm, Training, specs
from tpcheck.case import Case
from tpcheck.diagnosis.facts import Facts, gather
from tpcheck.diagnosis.hypotheses.reference import given
from tpcheck.diagnosis.one_step import by_itself
from tpcheck.oracle.pose import Posed, pose
from tpcheck.placement import take
from tpcheck.spec import Spec
from tpcheck.tensors.names import InPass
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Kind

TIED = Case({"batch": 2, "seq": 3, "hidden": 4, "vocab": 6}, mesh={"tp": 2}, seed=3)


def trained(of: Spec) -> Spec:
    return replace(of, training=Training(adamw, steps=3), budget=None)


def facts(of: Spec, case: Case, wrong: Mismatch) -> Facts:
    posed = pose(of, case)
    result = CaseResult(case, "gloo", [wrong])
    return Facts(posed, result, result, dumps_of(expected(posed)), lambda other: result, of)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(
    ("of", "case"),
    [
        (spec(adamw, norm=Norm()), CASE),
        (trained(specs.tied_embedding()), TIED),
        (
            trained(specs.mlp(dropout=(0.5,))),
            replace(CASE, dims={**CASE.dims, "dropout": 0.5}),
        ),
    ],
    ids=["two microbatches", "tied", "dropout"],
)
def test_the_reference_gives_of_it_what_it_gave_among_others(
    of: Spec, case: Case, step: int
) -> None:
    name = next(n for n in pose(of, case).params if "weight" in n)
    wrong = Mismatch(f"{name}@step{step + 1}", Kind.PARAM_GRAD, 0)
    all_steps = facts(of, case, wrong)
    local = gather(all_steps, wrong)
    assert local is not None
    found = by_itself(all_steps, local)
    assert found is not None
    alone, own = found
    assert (own.target.name, own.subject.name) == (name, wrong.tensor)
    problem = alone.posed.problems[0]
    again = given(alone, problem)
    compared = [t for t in problem.targets if t.kind.is_output or t.kind.is_gradient]
    assert {t.kind for t in compared} >= {Kind.OUTPUT, Kind.PARAM_GRAD, Kind.INPUT_GRAD}
    for target in compared:
        torch.testing.assert_close(
            again[target.kind, target.name], target.value, rtol=1e-12, atol=0
        )
    assert [m.tensor for m in alone.result.mismatches] == [name]
    assert alone.rerun(case) == alone.result
    held = {key.name for key in alone.dumps[0] if key.kind == Kind.PARAM_GRAD}
    assert name in held
    assert all(InPass.parse(key.name).at.step == 0 for key in alone.dumps[1])


@pytest.mark.parametrize(
    ("of", "tensor", "kind"),
    [
        (spec(adamw), "up.weight", Kind.PARAM_GRAD),
        (spec(adamw), "up.weight@step2", Kind.PARAM),
        (specs.mlp(), "up.weight", Kind.PARAM_GRAD),
    ],
    ids=["of the first step", "what a step leaves", "without training"],
)
def test_of_these_there_is_no_step_by_itself(of: Spec, tensor: str, kind: Kind) -> None:
    wrong = Mismatch(tensor, kind, 0)
    known = facts(of, CASE, wrong)
    local = gather(known, wrong)
    assert local is not None
    assert by_itself(known, local) is None


def of_the_head(posed: Posed, step: int) -> Tensor:
    """The gradient [V, H] that the head alone has in a step."""
    problem = posed.problems[0]
    weight = values(posed, Kind.PARAM, step - 1)["head.weight"]
    inputs, cotangent = problem.inputs[step], problem.cotangents[step]["output"].double()
    hidden = weight[inputs["ids"]] + inputs["x"].double()
    return torch.einsum("bsv,bsh->vh", cotangent, hidden)


def lacks_a_use(step: int) -> Edit:
    def edit(ranks: Ranks, posed: Posed) -> None:
        for rank, held in ranks.items():
            for name in ("embedding.weight", "head.weight"):
                key = f"param_grad/{name}@step{step + 1}"
                cut: Any = posed.params[name]
                held[key] = take(of_the_head(posed, step), cut, case=posed.case, rank=rank).clone()

    return edit


@pytest.mark.parametrize("step", [1, 2])
def test_a_use_that_is_lacking_from_a_later_step_on(step: int) -> None:
    named = examine(lacks_a_use(step), spec=trained(specs.tied_embedding()), case=TIED)
    assert named.code == "gradient-dropped", named
    assert f"@step{step + 1}" in named.message
