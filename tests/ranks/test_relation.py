"""Relations: what one rank computes stands in for the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from fixtures.compositions import pairs
from fixtures.mutants import relations
from fixtures.mutants.relations import HalvesInBackward
from fixtures.parallel.conjugates import ThroughSlices
from fixtures.parallel.linear import RowLinear
from tests import candidates
from tpcheck import Case, Check, Relation, Spec
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict

PLAIN = candidates.check(candidates.Row)
BARE = replace(PLAIN.spec, reference=None)
MESHED = replace(candidates.CASE, mesh={"dp": 2, "tp": 2}, microbatches=2)


class Unreduced(RowLinear):
    """Right on one rank, where there is nothing to sum."""

    def reduce(self, partial: Any) -> Any:
        return partial


class Doubled(RowLinear):
    """Wrong in the same way at any degree."""

    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)


@pytest.mark.parametrize("name", ["gloo", "threads"])
@pytest.mark.parametrize("case", [candidates.CASE, MESHED])
def test_what_one_rank_computes_is_what_others_are_held_to(
    request: pytest.FixtureRequest, name: str, case: Case
) -> None:
    engine = request.getfixturevalue(name)
    right = Relation(BARE, candidates.linear(RowLinear))
    assert Runner(right, engine).run(case).verdict is Verdict.PASS
    wrong = Relation(BARE, candidates.linear(Unreduced))
    assert Runner(wrong, engine).run(case).verdict is Verdict.FAIL
    assert not dist.is_initialized()


def test_two_ways_to_compute_it_must_be_one(gloo: Engine) -> None:
    row, doubled = candidates.linear(RowLinear), candidates.linear(Doubled)
    for candidate, same_as, verdict in (
        (doubled, None, Verdict.PASS),
        (doubled, row, Verdict.FAIL),
        (row, doubled, Verdict.FAIL),
        (doubled, doubled, Verdict.PASS),
    ):
        relation = Relation(BARE, candidate, same_as=same_as)
        assert Runner(relation, gloo).run(candidates.CASE).verdict is verdict


def test_the_reference_of_a_ready_spec_is_not_asked(gloo: Engine) -> None:
    def never(case: Case) -> Any:
        raise AssertionError

    relation = Relation(replace(PLAIN.spec, reference=never), candidates.linear(RowLinear))
    assert Runner(relation, gloo).run(candidates.CASE).verdict is Verdict.PASS


held = Relation(BARE, candidates.linear(RowLinear), same_as=candidates.linear(RowLinear))


def test_it_is_found_and_renamed_as_any_check() -> None:
    assert held.address() == (__file__, "held")
    renamed = held.named("other")
    assert isinstance(renamed, Relation)
    assert (renamed.same_as, renamed.spec) == (held.same_as, held.spec)
    assert renamed.address() == (__file__, "held")


def plan(case: Case, mesh: Any) -> Any:
    linear = nn.Linear(case["in_features"], case["out_features"])
    return parallelize_module(linear, mesh["tp"], ColwiseParallel())


def test_what_can_not_stand_in_is_said_in_a_line(gloo: Engine) -> None:
    with pytest.raises(InvalidArgument, match="weight is a DTensor; give the module without"):
        Runner(Relation(BARE, plan), gloo).run(candidates.CASE)
    with pytest.raises(InvalidArgument, match="on one rank the candidate is a NoneType"):
        Runner(Relation(BARE, lambda case, mesh: None), gloo).run(candidates.CASE)
    with pytest.raises(InvalidArgument, match=r"spec .* has no reference; give it one, or a Rel"):
        Check(BARE, PLAIN.candidate)
    with pytest.raises(InvalidArgument, match="give it as same_as"):
        Relation(BARE, PLAIN.candidate, overrides={"reference": lambda case: None})
    with pytest.raises(InvalidArgument, match="same_as=3"):
        Relation(BARE, PLAIN.candidate, same_as=3)  # type: ignore[arg-type]
    assert isinstance(BARE, Spec)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_backward_that_is_wrong_on_one_rank_too_is_held_to_its_forward(
    gloo: Engine, at_once: bool
) -> None:
    case = Case(dims={"rows": 4, "width": 5}, mesh={"tp": 2}, microbatches=1 + at_once)
    for cls, verdict in ((HalvesInBackward, Verdict.FAIL), (ThroughSlices, Verdict.PASS)):
        build = relations.slices.candidate(cls)
        by_itself = Relation(pairs.through_slices(), build)
        assert Runner(by_itself, gloo).run(case).verdict is Verdict.PASS
        held = Relation(pairs.through_slices(), build, adjoint=True)
        assert Runner(held, gloo).run(case).verdict is verdict


def test_what_is_not_linear_has_no_transpose(gloo: Engine) -> None:
    def run(build: Any, width: int = 5) -> None:
        spec = replace(pairs.through_slices(), budget=None)
        case = Case(dims={"rows": 4, "width": width}, mesh={"tp": 2})
        Runner(Relation(spec, build, adjoint=True), gloo).run(case)

    with pytest.raises(InvalidArgument, match="it is not linear in its inputs, which adjoint=Tr"):
        run(lambda case, mesh: lambda x: x * x)
    with pytest.raises(InvalidArgument, match="it is not linear"):
        run(lambda case, mesh: lambda x: x + 1)
    with pytest.raises(InvalidArgument, match="it has parameters: adjoint=True is for linear"):
        run(lambda case, mesh: nn.Linear(5, 5))
    with pytest.raises(InvalidArgument, match=r"inputs of 8000 numbers: .* at most 4096"):
        run(lambda case, mesh: lambda x: x, width=2000)
    with pytest.raises(InvalidArgument, match=r"adjoint=3\): give True or False"):
        Relation(BARE, PLAIN.candidate, adjoint=3)  # type: ignore[arg-type]
