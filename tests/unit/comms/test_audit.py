"""A trace against a budget: what exceeds it, and what it asks for and does not find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tpcheck import Case
from tpcheck.budget import Budget, ring
from tpcheck.case import MODES
from tpcheck.comms.audit import audit
from tpcheck.event import Event
from tpcheck.evidence import PathNotTaken
from tpcheck.report.as_json import detail
from tpcheck.vocabulary import Phase

EVENT = Event("all_reduce", "sum", (0, 1), "float64", (8,), 8, 64, Phase.FORWARD, "")


def audited(budget: Budget, *events: Event, microbatches: int = 1, saved: int = 0) -> Any:
    case = Case(mesh={"tp": 2}, microbatches=microbatches)
    return [(m.kind, m.error) for m in audit(budget, case, 0, events, saved)]


def test_an_all_reduce_is_a_reduce_scatter_and_a_gather() -> None:
    budget = Budget({"all_reduce": 8})
    parts = [replace(EVENT, op=op) for op in ("reduce_scatter", "all_gather")]
    assert audited(budget, EVENT) == audited(budget, *parts) == []
    assert ring("all_reduce", 8, 2) == ring("all_gather", 8, 2) + ring("reduce_scatter", 8, 2)


def test_what_exceeds_the_budget_is_measured() -> None:
    assert audited(Budget({"all_reduce": 8}), EVENT, EVENT) == [("communication_bytes", 8.0)]
    assert audited(Budget({"all_reduce": 8}), EVENT, EVENT, microbatches=2) == []
    assert audited(Budget({"all_reduce": 8}), replace(EVENT, phase=Phase.BACKWARD)) == [
        ("communication_bytes", 8.0)
    ]


def test_a_path_that_was_not_taken_is_a_mismatch() -> None:
    budget = Budget({"all_reduce": 8}, at_least={("forward", "all_reduce"): 1})
    assert audited(budget, EVENT) == []
    assert audited(budget) == [("witness", None)]


def test_a_kernel_that_should_have_run_is_counted_in_each_microbatch_and_once_in_a_step() -> None:
    due = {("forward", "gemm"): 2, ("step", "gemm"): 1}
    case = Case(mesh={"tp": 2}, microbatches=2, step=True)

    def missed(forward: int, step: int) -> list[object]:
        counted = {(Phase.FORWARD, "gemm"): forward, (Phase.STEP, "gemm"): step}
        found = audit(Budget(None, None, at_least=due), case, 1, [], counted=counted)
        return [m.detail for m in found]

    assert missed(4, 1) == []
    assert missed(3, 1) == [PathNotTaken("gemm", Phase.FORWARD, 3, 4)]
    assert missed(4, 0) == [PathNotTaken("gemm", Phase.STEP, 0, 1)]


def test_where_there_is_no_step_nothing_of_one_is_due() -> None:
    due, case = Budget(None, None, at_least={("step", "gemm"): 1}), Case(mesh={"tp": 2})
    assert audit(due, case, 0, []) == []
    for found in (
        audit(due, replace(case, step=True), 0, []),
        audit(due, case, 0, [], updates=True),
    ):
        assert [m.detail for m in found] == [PathNotTaken("gemm", Phase.STEP, 0, 1)]


def test_each_step_has_its_microbatches() -> None:
    budget = Budget({"all_reduce": 8}, at_least={("forward", "all_reduce"): 1})
    case = Case(mesh={"tp": 2}, microbatches=2)
    found = {n: audit(budget, case, 0, [EVENT] * n, steps=3) for n in (5, 6, 7)}
    assert [m.kind for m in found[5]] == ["witness"] and found[6] == []
    assert [(m.kind, m.error) for m in found[7]] == [("communication_bytes", 8.0)]


def test_an_optimizer_may_leave_out_a_step() -> None:
    budget, case = Budget(None, None, at_least={("step", "adam"): 1}), Case(mesh={"tp": 2})
    for times, missing in ((3, []), (2, []), (0, ["witness"])):
        counted = {(Phase.STEP, "adam"): times}
        found = audit(budget, case, 0, [], counted=counted, steps=3, updates=True)
        assert [m.kind for m in found] == missing


def test_what_clipping_or_an_optimizer_sends_has_no_budget() -> None:
    case, step = Case(mesh={"tp": 2}, step=True), replace(EVENT, phase=Phase.STEP)
    for updates, kinds in ((False, ["communication_bytes"]), (True, [])):
        found = audit(Budget({}), case, 0, [step], updates=updates)
        assert [m.kind for m in found] == kinds
    found = audit(Budget({}), case, 0, [EVENT, step], updates=True)
    assert [m.kind for m in found] == ["communication_bytes"]


def test_where_something_takes_no_gradient_no_backward_is_due() -> None:
    due = Budget(None, None, at_least={("backward", "gemm"): 1})
    missed = {mode: [*audit(due, Case(mode=mode), 0, [])] for mode in MODES}
    assert {mode for mode in MODES if missed[mode]} == {"train", "eval", "inference"}


def test_where_no_gradient_is_asked_for_no_backward_is_due() -> None:
    due = Budget(None, None, at_least={("forward", "gemm"): 1, ("backward", "gemm"): 1})
    counted = {(Phase.FORWARD, "gemm"): 1}
    case = Case(mesh={"tp": 1}, gradients="none")
    assert audit(due, case, 0, [], counted=counted) == []
    found = audit(due, replace(case, gradients="some"), 0, [], counted=counted)
    assert [m.detail for m in found] == [PathNotTaken("gemm", Phase.BACKWARD, 0, 1)]


def test_an_op_in_another_dtype_than_was_chosen_is_a_mismatch_once() -> None:
    budget = Budget({"all_reduce": 99}, dtypes={("forward", "all_reduce"): "float32"})
    low = replace(EVENT, dtype="bfloat16", where="mlp.py:3")
    right = replace(low, dtype="float32")
    case = Case(mesh={"tp": 2})
    assert audit(budget, case, 0, [right, replace(low, op="all_gather")]) == []
    (found,) = audit(budget, case, 1, [right, low, low])
    assert (found.kind, found.rank) == ("collective", 1)
    reason = "all_reduce in forward runs in bfloat16, float32 is due at mlp.py:3"
    assert detail(found)["reason"] == reason
    assert (budget * 2 + Budget()).dtypes == budget.dtypes


def test_a_budget_without_volumes_allows_any() -> None:
    free = Budget(None, {}) * 3 + Budget({"all_reduce": 1})
    assert (free.forward, free.backward) == (None, {})
    assert audited(free, EVENT) == []
    assert audited(free, replace(EVENT, phase=Phase.BACKWARD)) == [("communication_bytes", 8.0)]


def test_more_saved_than_allowed_is_a_mismatch() -> None:
    assert audited(Budget(saved=10), saved=10) == []
    assert audited(Budget(saved=10), saved=11) == [("saved_bytes", 1.0)]
