"""Budgets: what a block sends equals the ring formulas exactly, and one gather more is found.

Letters: R degree, B batch, S sequence, H hidden; n = B·S·H elements of an activation.
`pytest tests/ranks/test_budget.py -rP` prints the table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fixtures.parallel import collectives
from fixtures.parallel.block import Block
from fixtures.parallel.clipping import Clipping
from fixtures.parallel.linear import ColumnLinear, RowLinear
from fixtures.parallel.mlp import MLP
from tests.candidates import BLOCK, CASE, linear
from tpcheck import Case, Check, Norm, Scaling, Training, specs
from tpcheck.budget import Budget, ring
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.event import Event
from tpcheck.report.as_json import detail
from tpcheck.runner.runner import Runner
from tpcheck.specs.block import block_budget, block_dims
from tpcheck.verdict import CaseResult, Verdict

N, H, WIDTH = 2 * 8 * 16, 16, 4  # elements, hidden, bytes of a float32


class GathersOnceMore(MLP):
    """Correct, but for an all-gather of what every rank holds already."""

    def leave(self, x: Tensor, activated: Tensor) -> Tensor:
        y = super().leave(x, activated)
        collectives.all_gather(y.detach(), dim=0, group=self.group)
        return y


class WastefulBlock(Block):
    mlp_class = GathersOnceMore


def run(engine: Engine, degree: int, *, sp: bool, cls: type[Block] = Block) -> CaseResult:
    def build(case: Case, mesh: Any) -> Block:
        dims: Any = block_dims(case)
        return cls(**dims, group=mesh["tp"].get_group(), sequence_parallel=sp)

    check = Check(specs.block(sequence_parallel=sp), build, communication=True)
    return Runner(check, engine).run(Case(dims=BLOCK, mesh={"tp": degree}, dtype="float32"))


def sent(events: list[Event], phase: str) -> tuple[dict[str, int], int, float]:
    """How often each op ran in `phase`, the bytes of its full tensors, and the bytes that a ring
    sends a rank."""
    own = [e for e in events if e.phase == phase]
    counts = {op: sum(e.op == op for e in own) for op in sorted({e.op for e in own})}
    moved = sum(ring(e.op, e.bytes, len(e.group)) for e in own)
    return counts, sum(e.bytes for e in own), moved


class Squares(RowLinear):
    """Wrong in a way that has no name: every cause is asked for, those in the budget last."""

    def sum_output(self, partial: Tensor) -> Tensor:
        return super().sum_output(partial) + partial.square()


def broken(case: Case) -> Budget:
    raise KeyError("n")


@pytest.mark.parametrize("communication", [False, True])
@pytest.mark.parametrize(
    ("budget", "words"),
    [(lambda case: 3, r"budget\(case\) returned a int, not a Budget"),
     (broken, "budget raised KeyError: 'n' at test_budget.py")],
)  # fmt: skip
def test_what_is_no_budget_is_refused(
    gloo: Engine, budget: Any, words: str, communication: bool
) -> None:
    spec = replace(specs.row_linear(), budget=budget)
    runner = Runner(Check(spec, linear(Squares), communication=communication), gloo)
    with pytest.raises(InvalidArgument, match=words):
        examine_failure(runner, runner.run(CASE))


def test_a_budget_of_none_allows_anything(gloo: Engine) -> None:
    spec = replace(specs.row_linear(), budget=lambda case: None)
    runner = Runner(Check(spec, linear(Squares), communication=True), gloo)
    found = runner.run(CASE)
    assert found.verdict is Verdict.FAIL
    assert examine_failure(runner, found).diagnosis.code == "unclassified"


@pytest.fixture(scope="module")
def eight() -> Any:
    with Engine("gloo", 8, time_limit=60) as engine:
        yield engine


@pytest.mark.parametrize("degree", [2, 4, 8])
@pytest.mark.parametrize("sp", [False, True], ids=["tp", "tp+sp"])
def test_counts_and_bytes_of_a_block_are_the_formulas(eight: Engine, sp: bool, degree: int) -> None:
    result = run(eight, degree, sp=sp)
    assert result.verdict is Verdict.PASS, result.mismatches
    pairs = {"all_gather": 2, "reduce_scatter": 2}  # the conjugate pairs of two layers
    share = (degree - 1) / degree * N * WIDTH  # what a gather, or a reduce-scatter, sends a rank
    expected: dict[str, tuple[dict[str, int], int, float]]
    if sp:  # and in backward the sums of two norms' weights, each of which sees part of the tokens
        norms = 2 * H * WIDTH
        expected = {
            "forward": (pairs, 4 * N * WIDTH, 4 * share),
            "backward": (
                {"all_gather": 2, "all_reduce": 2, "reduce_scatter": 2},
                4 * N * WIDTH + norms,
                4 * share + 2 * (degree - 1) / degree * norms,
            ),
        }
    else:
        each = ({"all_reduce": 2}, 2 * N * WIDTH, 2 * 2 * share)
        expected = {"forward": each, "backward": each}
    name = "TP+SP" if sp else "TP"
    for phase, formula in expected.items():
        for rank, events in enumerate(result.trace):
            assert sent(events, phase) == formula, (rank, phase)
        counts, whole, moved = formula
        ops = ", ".join(f"{n} {op}" for op, n in counts.items())
        print(f"{name:<6} tp={degree}  {phase:<9}{ops:<48}{whole:>7} B{moved:>9.0f} B a rank")


@pytest.mark.parametrize("degree", [2, 4, 8])
@pytest.mark.parametrize("sp", [False, True], ids=["tp", "tp+sp"])
def test_one_needless_all_gather_is_found(eight: Engine, sp: bool, degree: int) -> None:
    result = run(eight, degree, sp=sp, cls=WastefulBlock)
    assert {m.kind for m in result.mismatches} == {"communication_bytes"}
    found = result.mismatches[0]
    assert detail(found)["phase"] == "forward"
    gathered = N if sp else N * degree
    assert found.error == pytest.approx(ring("all_gather", gathered, degree))


class SumsTwice(RowLinear):
    """Right, but for a sum that was there before."""

    def combine(self, partial: Tensor) -> Tensor:
        collectives.all_reduce(partial.detach(), group=self.group)
        return super().combine(partial)


@pytest.mark.parametrize("steps", [2, 3])
def test_each_step_may_send_what_one_does(gloo: Engine, steps: int) -> None:
    training = Training(lambda named: torch.optim.SGD(named.values(), lr=0.1), steps=steps)
    spec = replace(specs.row_linear(), training=training)
    right = Check(spec, linear(RowLinear), communication=True)
    assert Runner(right, gloo).run(CASE).verdict is Verdict.PASS
    result = Runner(replace(right, candidate=linear(SumsTwice)), gloo).run(CASE)
    assert {m.kind for m in result.mismatches} == {"communication_bytes"}
    found = result.mismatches[0]
    assert found.actual == 2 * found.expected


@pytest.mark.parametrize("scaling", [None, Scaling()])
def test_clipping_and_scaling_are_free(gloo: Engine, scaling: Scaling | None) -> None:
    """Of a column, which sends nothing in forward."""
    training = Training(lambda named: torch.optim.SGD(named.values(), lr=0.1), scaling=scaling)
    spec = replace(specs.column_linear(), norm=Norm(), training=training)
    clipped = Check(spec, linear(ColumnLinear), clip=Clipping(2.0), communication=True)
    plain = replace(clipped, spec=replace(spec, training=None))
    for check in (clipped, plain):
        result = Runner(check, gloo).run(CASE)
        assert result.verdict is Verdict.PASS, result.mismatches


# ---- what is kept for backward


class KeepsTheWholeActivation(MLP):
    """Right in every value and no collective too many: what is kept is not the rank's own part."""

    def activate(self, h: Tensor) -> Tensor:
        y = super().activate(h)
        whole = torch.cat([y] * self.degree, -1)  # as a gather would have left it
        return (whole * 1.0).square().sqrt()[..., : y.shape[-1]] * 0.0 + y


class HoardingBlock(Block):
    mlp_class = KeepsTheWholeActivation


@pytest.mark.parametrize("sp", [False, True], ids=["tp", "tp+sp"])
def test_more_kept_for_backward_than_the_reference_keeps_of_this_size_is_found(
    eight: Engine, sp: bool
) -> None:
    result = run(eight, 4, sp=sp, cls=HoardingBlock)
    assert {m.kind for m in result.mismatches} == {"saved_bytes"}
    allowed = block_budget(result.case, sp).saved
    assert allowed is not None and result.mismatches[0].expected == allowed
    assert result.mismatches[0].error is not None and result.mismatches[0].error > 0
