"""Causes that need no values are named from the evidence alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.diagnosis.edits import CASE, alone
from tpcheck.causes.structure import GivenUp, PlanAtFault, RanksRaised
from tpcheck.evidence import (
    Died,
    Elsewhere,
    Entered,
    MessagesLost,
    Misheld,
    OverBudget,
    OverSaved,
    PathNotTaken,
    PlanFault,
    Raised,
    Refused,
    Scene,
    Stuck,
    TracesDiffer,
    WrongDtype,
)
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Code, Fault, Impasse, Kind, Phase

WAITS = Stuck(
    Impasse.EVERY_RANK_WAITS, waits_in="barrier", scene=Scene(last=("barrier", "send to rank 1"))
)
REFUSED = Refused(Entered(1, "barrier"), Entered(0, "all_reduce"), step=1, members=(0, 1))
IN_BUILD = Scene(phase=Phase.BUILD)
STRUCTURAL: dict[str, tuple[Kind, Any, Code]] = {
    "crash": (Kind.CRASH, Died(-11), Code.RANK_CRASH),
    "exception": (Kind.EXCEPTION, Raised("KeyError", "'x'"), Code.RANK_CRASH),
    "refused by torch": (
        Kind.EXCEPTION,
        Raised("ValueError", "no", IN_BUILD, row="FSDP before TP"),
        Code.ORDER_OF_PARALLELISMS,
    ),
    "refused": (Kind.COLLECTIVE, REFUSED, Code.COLLECTIVE_MISMATCH),
    "traces": (Kind.COLLECTIVE, TracesDiffer((0, 1), 1, (), {}), Code.COLLECTIVE_MISMATCH),
    "messages": (Kind.COLLECTIVE, MessagesLost(0, 1, 2, 1), Code.COLLECTIVE_MISMATCH),
    "dtype": (
        Kind.COLLECTIVE,
        WrongDtype("all_reduce", Phase.FORWARD, "bfloat16", "float32"),
        Code.PRECISION_LOSS,
    ),
    "witness": (
        Kind.WITNESS,
        PathNotTaken("all_gather", Phase.FORWARD, 1, 2),
        Code.PATH_NOT_TAKEN,
    ),
    "sent": (
        Kind.COMMUNICATION_BYTES,
        OverBudget(Phase.FORWARD, {"all_gather": 1}, 1),
        Code.EXTRA_COMMUNICATION,
    ),
    "saved": (Kind.SAVED_BYTES, OverSaved(16, 8), Code.UNCLASSIFIED),
    "hang": (Kind.HANG, WAITS, Code.DEADLOCK),
    "too long": (Kind.HANG, Stuck(Impasse.TOO_LONG, seconds=5.0), Code.DEADLOCK),
    "finished": (Kind.HANG, Stuck(Impasse.PEER_FINISHED, peer=0), Code.COLLECTIVE_MISMATCH),
    "plan": (
        Kind.SHARDING,
        PlanFault(Code.TIED_WEIGHTS_SPLIT, "they are one tensor", ("a", "b")),
        Code.TIED_WEIGHTS_SPLIT,
    ),
    **{
        fault: (Kind.SHARDING, Misheld(fault), code)
        for fault, code in {
            Fault.WHOLE: Code.PARAMETER_NOT_SHARDED,
            Fault.STORAGE: Code.PARAMETER_NOT_SHARDED,
            Fault.READ: Code.PARAMETER_NOT_SHARDED,
            Fault.NONE_SHARDED: Code.PARAMETER_NOT_SHARDED,
            Fault.SHAPE: Code.WRONG_PLACEMENT,
            Fault.PLACEMENT: Code.WRONG_PLACEMENT,
            Fault.MISSING: Code.PLAN_ENTRY_UNMATCHED,
            Fault.UNEXPECTED: Code.PLAN_ENTRY_UNMATCHED,
        }.items()
    },
}


@pytest.mark.parametrize("name", STRUCTURAL)
def test_what_needs_no_values_is_named_from_the_evidence_alone(name: str) -> None:
    kind, detail, code = STRUCTURAL[name]
    followed = Stuck(Impasse.PEER_FAILED, scene=Scene(consequence=True))
    waits = Mismatch("hang", Kind.HANG, 0, detail=followed)
    cause = Mismatch("w", kind, 1, detail=detail)
    assert alone(cause).code is alone(waits, cause).code is code


def test_a_rank_that_died_says_more_than_those_that_wait_for_it() -> None:
    died = Mismatch("rank", Kind.CRASH, 1, detail=Died(-9))
    waits = Mismatch("rank", Kind.HANG, 0, detail=WAITS)
    assert alone(waits, died).code is Code.RANK_CRASH
    assert alone(waits, died).message == "rank 1 died: killed by SIGKILL"


def test_torch_refuses_an_order_in_the_build_alone() -> None:
    scene = Scene(phase=Phase.FORWARD)
    raised = Raised("ValueError", "no", scene, row="FSDP before TP")
    named = alone(Mismatch("rank", Kind.EXCEPTION, 1, detail=raised))
    assert named.code is Code.RANK_CRASH
    assert named.cause == RanksRaised((1,), False, "ValueError", "no", Phase.FORWARD)


def test_every_rank_that_raises_is_counted() -> None:
    found = [
        Mismatch("rank", Kind.EXCEPTION, rank, detail=Raised("KeyError", "'x'", IN_BUILD))
        for rank in range(CASE.world_size)
    ]
    assert alone(*found).message == "every rank raised KeyError: 'x' (in build)"
    assert alone(found[2]).message == "rank 2 raised KeyError: 'x' (in build)"


def test_each_rank_that_hangs_is_shown_where_it_waits() -> None:
    still = Stuck(Impasse.TOO_LONG, seconds=5.0)
    cause = alone(
        Mismatch("rank", Kind.HANG, 1, detail=WAITS), Mismatch("rank", Kind.HANG, 2, detail=still)
    ).cause
    assert cause == GivenUp(1, WAITS, {1: "barrier", 2: None})


def fault(tensor: str, rank: int, kind: Fault) -> Mismatch:
    elsewhere = Elsewhere({"pp": 1}, {"pp": 0}) if kind is Fault.ELSEWHERE else None
    return Mismatch(tensor, Kind.SHARDING, rank, detail=Misheld(kind, elsewhere=elsewhere))


def test_a_parameter_of_another_stage_is_misplaced_and_one_of_none_is_missing() -> None:
    moved = [fault("a", 0, Fault.MISSING), fault("a", 2, Fault.ELSEWHERE)]
    assert alone(*moved).code is Code.WRONG_PLACEMENT
    assert alone(*moved).message == (
        "a is on the ranks of pp=1; the layout has it on those of pp=0 only"
    )
    lost = alone(*moved, fault("b", 2, Fault.MISSING))
    assert (lost.code, lost.message) == ("plan-entry-unmatched", "the candidate has no 'b'")


def test_the_shapes_are_those_of_the_parameter_that_is_named() -> None:
    of_b = Misheld(Fault.SHAPE, shape=(1, 2), expected_shape=(2, 2))
    of_a = Misheld(Fault.SHAPE, shape=(3,), expected_shape=(4,))
    found = [Mismatch(n, Kind.SHARDING, 0, detail=d) for n, d in (("b", of_b), ("a", of_a))]
    assert alone(*found).message == (
        "b has the local shape [1, 2], the layout says [2, 2]; a shard without a mark, "
        "which gradient norms and checkpoints take for a whole?"
    )


def test_all_findings_of_a_plan_name_their_parameters() -> None:
    found = [
        PlanFault(Code.PARAMETER_NOT_SHARDED, "left out", ("a", "b")),
        PlanFault(Code.WRONG_PLACEMENT, "split otherwise", ("b", "c")),
    ]
    named = alone(*(Mismatch("a", Kind.SHARDING, 0, detail=detail) for detail in found))
    assert named.code is Code.PARAMETER_NOT_SHARDED
    assert named.cause == PlanAtFault(("a", "b", "c"), "left out")
