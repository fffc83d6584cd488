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
from fixtures.parallel.linear import RowLinear
from fixtures.parallel.mlp import MLP
from tests import faulty
from tpcheck import Case, Check, specs
from tpcheck.budget import Budget, audit, kept_for_backward, ring
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.runner.runner import Runner
from tpcheck.specs.block import block_budget, block_dims
from tpcheck.verdict import CaseResult, Verdict

DIMS = {
    "batch": 2, "seq": 8, "hidden": 16, "heads": 8, "kv_heads": 8, "head_dim": 4,
    "intermediate": 16, "activation": "swiglu", "norm": "rms", "bias": False, "qk_norm": False,
    "rotary": True, "causal": True,
}  # fmt: skip
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
    return Runner(check, engine).run(Case(dims=DIMS, mesh={"tp": degree}, dtype="float32"))


def sent(events: list[dict[str, Any]], phase: str) -> tuple[dict[str, int], int, float]:
    """How often each op ran in `phase`, the bytes of its full tensors, and the bytes that a ring
    sends a rank."""
    own = [e for e in events if e["phase"] == phase]
    counts = {op: sum(e["op"] == op for e in own) for op in sorted({e["op"] for e in own})}
    moved = sum(ring(e["op"], e["bytes"], len(e["group"])) for e in own)
    return counts, sum(e["bytes"] for e in own), moved


class Squares(RowLinear):
    """Wrong in a way that has no name: every cause is asked for, those in the budget last."""

    def sum_output(self, partial: Tensor) -> Tensor:
        return super().sum_output(partial) + partial.square()


def squares(case: Case, mesh: Any) -> Squares:
    group = mesh["tp"].get_group()
    return Squares(case["in_features"], case["out_features"], group=group, bias=case["bias"])


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
    runner = Runner(Check(spec, squares, communication=communication), gloo)
    with pytest.raises(InvalidArgument, match=words):
        examine_failure(runner, runner.run(faulty.CASE))


@pytest.mark.parametrize(
    ("members", "words"),
    [({"forward": 3}, r"Budget\(forward=3\) is a int; give a mapping"),
     ({"at_least": None}, r"Budget\(at_least=None\) is a NoneType; give a mapping"),
     ({"saved": "much"}, r"Budget\(saved='much'\) is not a number of elements, nor None")],
)  # fmt: skip
def test_a_budget_s_members_are_checked(members: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Budget(**members)


def test_a_budget_of_none_allows_anything(gloo: Engine) -> None:
    spec = replace(specs.row_linear(), budget=lambda case: None)
    runner = Runner(Check(spec, squares, communication=True), gloo)
    found = runner.run(faulty.CASE)
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


@pytest.mark.parametrize("sp", [False, True], ids=["tp", "tp+sp"])
def test_the_budget_is_the_formula(sp: bool) -> None:
    """Under SP with one more gather a layer in backward, for who saves the shard alone."""
    budget = block_budget(Case(dims=DIMS, mesh={"tp": 4}), sp)
    if sp:
        assert budget.forward == {"all_gather": 2 * N, "reduce_scatter": 2 * N}
        assert budget.backward["reduce_scatter"] == 2 * N
        assert budget.backward["all_gather"] == 2 * N + 2 * N
    else:
        assert (budget.forward, budget.backward["all_reduce"]) == ({"all_reduce": 2 * N}, 2 * N)


@pytest.mark.parametrize("degree", [2, 4, 8])
@pytest.mark.parametrize("sp", [False, True], ids=["tp", "tp+sp"])
def test_one_needless_all_gather_is_found(eight: Engine, sp: bool, degree: int) -> None:
    result = run(eight, degree, sp=sp, cls=WastefulBlock)
    assert {m.kind for m in result.mismatches} == {"communication_bytes"}
    found = result.mismatches[0]
    assert found.detail["phase"] == "forward"
    gathered = N if sp else N * degree
    assert found.error == pytest.approx(ring("all_gather", gathered, degree))


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


def test_a_rank_may_keep_what_the_reference_keeps_of_its_size() -> None:
    one, four = (block_budget(Case(dims=DIMS, mesh={"tp": r}), False).saved for r in (1, 4))
    whole = block_budget(Case(dims=DIMS, mesh={"tp": 4}, memory="sliced"), False).saved
    assert one is not None and four is not None and four < one and whole is None
    sp = block_budget(Case(dims=DIMS, mesh={"tp": 4}), True).saved
    assert sp is not None and sp < four  # the norms see a quarter of the tokens


def test_parameters_are_not_kept_for_backward_and_a_shared_storage_counts_once() -> None:
    linear, x = torch.nn.Linear(3, 5), torch.ones(2, 3)
    assert kept_for_backward(linear, x) == 6
    twice = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 5))
    assert kept_for_backward(twice, torch.ones(2, 3)) == 6


# ---- the audit itself


EVENT = {"op": "all_reduce", "elements": 8, "group": (0, 1), "phase": "forward"}


def audited(budget: Budget, *events: dict[str, Any], microbatches: int = 1, saved: int = 0) -> Any:
    case = Case(mesh={"tp": 2}, microbatches=microbatches)
    return [(m.kind, m.error) for m in audit(budget, case, 0, events, saved)]


def test_an_all_reduce_is_a_reduce_scatter_and_a_gather() -> None:
    budget = Budget({"all_reduce": 8})
    parts = [{**EVENT, "op": op} for op in ("reduce_scatter", "all_gather")]
    assert audited(budget, EVENT) == audited(budget, *parts) == []
    assert ring("all_reduce", 8, 2) == ring("all_gather", 8, 2) + ring("reduce_scatter", 8, 2)


def test_what_exceeds_the_budget_is_measured() -> None:
    assert audited(Budget({"all_reduce": 8}), EVENT, EVENT) == [("communication_bytes", 8.0)]
    assert audited(Budget({"all_reduce": 8}), EVENT, EVENT, microbatches=2) == []
    assert audited(Budget({"all_reduce": 8}), {**EVENT, "phase": "backward"}) == [
        ("communication_bytes", 8.0)
    ]


def test_a_path_that_was_not_taken_is_a_mismatch() -> None:
    budget = Budget({"all_reduce": 8}, at_least={("forward", "all_reduce"): 1})
    assert audited(budget, EVENT) == []
    assert audited(budget) == [("collective", None)]


def test_an_op_in_another_dtype_than_was_chosen_is_a_mismatch_once() -> None:
    budget = Budget({"all_reduce": 99}, dtypes={("forward", "all_reduce"): "float32"})
    low = {**EVENT, "dtype": "bfloat16", "where": "mlp.py:3"}
    right = {**low, "dtype": "float32"}
    case = Case(mesh={"tp": 2})
    assert audit(budget, case, 0, [right, {**low, "op": "all_gather"}]) == []
    (found,) = audit(budget, case, 1, [right, low, low])
    assert (found.kind, found.rank) == ("collective", 1)
    reason = "all_reduce in forward runs in bfloat16, float32 is due at mlp.py:3"
    assert found.detail["reason"] == reason
    assert (budget * 2 + Budget()).dtypes == budget.dtypes


def test_a_budget_without_volumes_allows_any() -> None:
    free = Budget(None, {}) * 3 + Budget({"all_reduce": 1})
    assert (free.forward, free.backward) == (None, {})
    assert audited(free, EVENT) == []
    assert audited(free, {**EVENT, "phase": "backward"}) == [("communication_bytes", 8.0)]


def test_more_saved_than_allowed_is_a_mismatch() -> None:
    assert audited(Budget(saved=10), saved=10) == []
    assert audited(Budget(saved=10), saved=11) == [("saved_bytes", 1.0)]


def test_budgets_add_up_and_repeat() -> None:
    one = Budget({"all_reduce": 3}, {"all_gather": 2}, saved=5)
    both = (one + one) * 2
    assert (both.forward, both.backward, both.saved) == ({"all_reduce": 12}, {"all_gather": 8}, 20)
    assert both.allowed("forward", 2) == 12 and both.allowed("backward", 2) == 4
