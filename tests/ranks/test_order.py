"""The order of parallelisms: every mistake of the table is built, found and named, and right orders
are left alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from torch import nn

from fixtures.compositions import fsdp, orders, routed, transformer
from fixtures.mutants.exchanges import EmptyRankCutsTheGraph
from tests.candidates import DECODER
from tpcheck import Case, Check, order
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.oracle.pose import pose
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Code

CASE = Case(dims=DECODER | {"seq": 2, "heads": 2}, mesh={"dp": 2, "tp": 2})
CUT = {"layers.0.mlp.up_proj.weight": ("tp",), "layers.1.attention.o_proj.weight": ("tp",)}


def run(engine: Engine, build: Any) -> tuple[Runner, CaseResult]:
    runner = Runner(Check(fsdp.spec, build), engine)
    return runner, runner.run(CASE)


#: Others are of FSDP2 and of Float8 in each run.
SWEPT = {orders.fsdp1_then_tp, orders.fsdp_then_new_linears, orders.float8_without_hooks}
ROWS = [
    pytest.param(row, build, marks=pytest.mark.sweep if build in SWEPT else ())
    for row, builds in orders.WRONG.items()
    for build in builds
]


@pytest.mark.parametrize(("row", "build"), ROWS, ids=lambda x: getattr(x, "__name__", None))
def test_a_wrong_order_is_named(gloo: Engine, row: str, build: Any) -> None:
    runner, result = run(gloo, build)
    named = examine_failure(runner, result).diagnosis
    assert (named.code, named.message.partition(":")[0]) == ("order-of-parallelisms", row)


def test_the_right_order_is_left_alone(gloo: Engine) -> None:
    assert run(gloo, orders.right)[1].verdict is Verdict.PASS


def test_float8_between_tp_and_fsdp_is_in_order(gloo: Engine) -> None:
    _, result = run(gloo, orders.right_float8)
    assert {m.kind for m in result.mismatches} == {"output", "input_grad", "param_grad"}  # rounded


def shows(*each: tuple[Any, list[str]]) -> Any:
    """A right candidate, which fails where one of the models does not show its steps."""

    def checked(case: Case, mesh: Any) -> nn.Module:
        for build, steps in each:
            full = transformer.build(case).state_dict()
            found = order.applied(build(case, mesh), cut=CUT, full=full)
            assert found == steps, (build, found)
        return orders.right(case, mesh)

    return checked


STEPS = (
    (orders.right, ["tp", "checkpointing", "fsdp"]),
    (orders.right_float8, ["tp", "float8", "checkpointing", "fsdp"]),
    (orders.fsdp1_then_tp, ["fsdp", "tp"]),
    (orders.checkpointing_then_tp, ["checkpointing", "tp", "fsdp"]),
    (orders.fsdp_then_checkpointing, ["tp", "fsdp", "checkpointing"]),
    (orders.fsdp_then_float8, ["tp", "fsdp", "float8"]),
)


def test_a_model_shows_the_order_of_its_steps(gloo: Engine) -> None:
    found = run(gloo, shows(*STEPS))[1]
    assert found.verdict is Verdict.PASS, found.mismatches


def test_another_order_than_the_models_would_show(gloo: Engine) -> None:
    wrong = shows((orders.right, ["fsdp", "checkpointing", "tp"]))
    assert run(gloo, wrong)[1].verdict is Verdict.FAIL


def marks(*each: tuple[Any, set[str], dict[str, Any]]) -> Any:
    """A right candidate, which builds routed models over the tp axis in place of an ep axis, and
    fails where other rows than these are broken in one."""

    def checked(case: Case, mesh: Any) -> nn.Module:
        for build, rows, given in each:
            model = build(mesh["tp"], mesh["dp"])
            found = {b.row for b in order.broken(model, cut=orders.CUT_BY_EP, **given)}
            assert found == rows, (build, given, found)
        return orders.right(case, mesh)

    return checked


def test_units_around_experts_and_stages(gloo: Engine) -> None:
    own = orders.experts_in_their_own_unit
    staged = {"mesh": {"pp": 2, "ep": 2, "tp": 1}}
    right = marks(
        (own, set(), {}),
        (orders.experts_in_a_block_unit, {order.Row.EP_IN_A_BLOCK_UNIT}, {}),
        (orders.fsdp_then_ep, {order.Row.FSDP_BEFORE_EP}, {}),
        (own, {order.Row.MOE_WITH_PIPELINE}, staged),
        (own, set(), {"mesh": {"pp": 1, "ep": 2}}),
    )
    found = run(gloo, right)[1]
    assert found.verdict is Verdict.PASS, found.mismatches
    wrong = run(gloo, marks((own, set(), staged)))[1]
    assert wrong.verdict is Verdict.FAIL, "the twin: the last rank says what it found"


# ---- MoE + EP with per-block FSDP, end to end. The audit refuses it before anything runs; with the
# experts' axis under a name that it does not know, it runs.

ROUTED = Case(
    dims={"batch": 2, "hidden": 2, "intermediate": 1, "experts": 4},
    mesh={"dp": 2, "ep": 2, "tp": 1},
)
UNNAMED = replace(ROUTED, mesh={"dp": 2, "experts": 2, "tp": 1})
ROUTED_UNNAMED = replace(
    routed.spec,
    layout=lambda case: routed.layout("experts"),
    finalize=partial(routed.reduce_over, "experts"),
)


class LeavesTheExchange(EmptyRankCutsTheGraph, routed.RoutedMLP):
    """A rank whose experts got no token cuts the graph, and is not in the exchange of backward."""


def one_unit(mlp: Any) -> Any:
    return lambda case, mesh: routed.in_one_unit(case, mesh, "experts", mlp)


def without_tokens(case: Case) -> list[list[list[int]]]:
    """For each dp coordinate and each of the two choices: the ranks of the experts' axis whose
    experts no token chose."""
    out = []
    for problem in pose(ROUTED_UNNAMED, case).problems:
        block = routed.reference(case).double()
        block.load_state_dict(problem.params)
        chosen, _ = block.mlp.route(problem.inputs[0]["x"])  # type: ignore[operator]
        ranks = (chosen // (case["experts"] // 2)).T
        out.append([[e for e in range(2) if not bool((own == e).any())] for own in ranks])
    return out


def test_experts_in_their_own_unit_are_right_and_a_block_unit_is_refused(gloo: Engine) -> None:
    assert Runner(Check(routed.spec, routed.candidate), gloo).run(ROUTED).verdict is Verdict.PASS
    runner = Runner(Check(routed.spec, routed.in_one_unit), gloo)
    named = examine_failure(runner, runner.run(ROUTED)).diagnosis
    assert (
        named.code == Code.ORDER_OF_PARALLELISMS and order.Row.EP_IN_A_BLOCK_UNIT in named.message
    )


@pytest.mark.parametrize(
    ("seed", "skips", "words"),
    [
        # ranks 1 and 2 leave out what comes last in backward, and go on to FSDP: four ranks wait
        # in a circle
        pytest.param(
            *(67, [[[1], []], [[0], []]], ["in reduce_scatter", "in all_to_all"] * 2),
            marks=pytest.mark.sweep,  # a search, a third of a minute
        ),
        # rank 3 leaves out what comes later, rank 2 what comes first, and so they meet in
        # exchanges of different choices
        (0, [[[], []], [[1], [0]]], ["rank 2 sends 0 elements to rank 3, which expects 2"]),
    ],
)
def test_a_rank_that_leaves_an_exchange_of_a_block_unit_is_seen_at_once(
    gloo: Engine, seed: int, skips: Any, words: list[str]
) -> None:
    case = replace(UNNAMED, seed=seed)
    assert without_tokens(case) == skips
    right = Runner(Check(ROUTED_UNNAMED, one_unit(routed.RoutedMLP)), gloo)
    assert right.run(case).verdict is Verdict.PASS  # the unit alone makes nobody wait
    runner = Runner(Check(ROUTED_UNNAMED, one_unit(LeavesTheExchange)), gloo)
    result = runner.run(case)
    assert {m.kind for m in result.mismatches} == {"collective"}  # refused, not waited for
    named = examine_failure(runner, result).diagnosis
    assert named.code == "collective-mismatch"
    assert all(named.message.count(word) >= words.count(word) for word in words)
    assert named.message.count(" in backward of mlp at moe.py:") == 2
