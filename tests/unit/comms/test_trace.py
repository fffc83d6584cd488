"""The trace: what was entered, in order, and a peer in another collective is seen at once."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tpcheck.comms import trace
from tpcheck.comms.board import Board
from tpcheck.comms.operands import exchanged_by
from tpcheck.comms.reduce_ops import name_of, watch_reduce_ops
from tpcheck.comms.trace import Recorder
from tpcheck.errors import CollectiveMismatch
from tpcheck.event import COLLECTIVES, Event
from tpcheck.report.evidence import reason
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind, Phase

EVENT = Event("all_reduce", "sum", (0, 1), "float32", (4, 8), 32, 128, "forward", "mlp.py:41")
Pair = tuple[Recorder, Recorder]


@pytest.fixture
def pair() -> Pair:
    """Two ranks' recorders on one board."""
    board, memory = Board.new(2)
    for rank in range(2):
        board.begin(rank, 1)
    views = [board, Board(memory, 2)]
    os.close(memory)
    return tuple(Recorder(r, board=views[r], epoch=1, dispatch=False) for r in range(2))  # type: ignore[return-value]


def said(error: CollectiveMismatch) -> str:
    """The sentence of a refused collective."""
    return reason(Mismatch("collective", Kind.COLLECTIVE, 0, detail=error.refused)) or ""


def test_every_op_that_is_recorded_may_be_named_in_a_budget() -> None:
    assert set(trace._OPS.values()) == COLLECTIVES


def test_an_event_says_all_that_is_known_of_it() -> None:
    recorder = Recorder(0, dispatch=False)
    recorder.phase = Phase.BACKWARD
    small, large = (torch.zeros(n, dtype=torch.bfloat16) for n in ((2,), (4, 8)))
    recorder.record("all_reduce", [small, large], (0, 2), "sum")
    (event,) = recorder.events

    assert (event.op, event.reduce_op, event.group) == ("all_reduce", "sum", (0, 2))
    assert (event.dtype, event.shape) == ("bfloat16", (4, 8))  # of the largest
    assert (event.elements, event.bytes) == (34, 68)  # of all
    assert event.phase == "backward" and event.where.startswith("test_trace.py:")


def test_only_reducing_collectives_have_a_reduce_op() -> None:
    recorder = Recorder(0, dispatch=False)
    for op in ("all_reduce", "reduce_scatter", "reduce", "all_gather", "broadcast", "all_to_all"):
        recorder.record(op, [torch.zeros(2)], (0, 1), "sum")
    assert [e.reduce_op for e in recorder.events] == ["sum"] * 3 + [None] * 3


def test_a_barrier_carries_no_tensor() -> None:
    recorder = Recorder(0, dispatch=False)
    recorder.record("barrier", [], (0, 1), None)
    assert (recorder.events[0].bytes, recorder.events[0].shape) == (0, ())


def test_a_description_names_everything() -> None:
    assert EVENT.describe() == (
        "all_reduce(sum) float32[4, 8] over ranks 0,1 in forward at mlp.py:41"
    )


@pytest.mark.parametrize(
    "change", [{"op": "broadcast"}, {"reduce_op": "avg"}, {"dtype": "float64"}, {"shape": (8, 4)}]
)
def test_ranks_must_agree_on_op_reduce_op_dtype_and_shape(change: dict[str, object]) -> None:
    other = replace(EVENT, **change)  # type: ignore[arg-type]
    assert other.fingerprint() != EVENT.fingerprint()


def test_ranks_need_not_agree_on_place_phase_or_gathered_shapes() -> None:
    moved = replace(EVENT, phase="backward", where="other.py:1")
    assert moved.fingerprint() == EVENT.fingerprint()
    gather = replace(EVENT, op="all_gather", reduce_op=None)
    assert replace(gather, shape=(1, 8)).fingerprint() == gather.fingerprint()


def test_the_same_collectives_in_the_same_order_are_no_mismatch(pair: Pair) -> None:
    for shape, op in (((2, 3), "sum"), ((4,), "max")):
        for recorder in pair:
            recorder.record("all_reduce", [torch.zeros(shape)], (0, 1), op)
    assert [e.reduce_op for e in pair[1].events] == ["sum", "max"]


@pytest.mark.parametrize(
    ("op", "tensor", "reduce_op"),
    [
        ("all_gather", torch.zeros(2, 3), None),
        ("all_reduce", torch.zeros(2, 3), "avg"),
        ("all_reduce", torch.zeros(3, 2), "sum"),
        ("all_reduce", torch.zeros(2, 3).double(), "sum"),
    ],
    ids=["op", "reduce-op", "shape", "dtype"],
)
def test_the_second_rank_in_another_collective_raises_and_names_both(
    pair: Pair, op: str, tensor: torch.Tensor, reduce_op: str | None
) -> None:
    pair[0].record("all_reduce", [torch.zeros(2, 3)], (0, 1), "sum")
    with pytest.raises(CollectiveMismatch) as caught:
        pair[1].record(op, [tensor], (0, 1), reduce_op)
    text = said(caught.value)
    assert pair[0].events[-1].describe() in text and pair[1].events[-1].describe() in text


Splits = tuple[list[int], list[int]]


def enter_all_to_all(recorder: Recorder, sent: list[int], received: list[int]) -> None:
    """The two ranks' all-to-all of rows of 3 elements."""
    tensors = [torch.zeros(sum(rows), 3) for rows in (received, sent)]
    exchanged = exchanged_by("all_to_all", (*tensors, received, sent), 2)
    recorder.record("all_to_all", tensors, (0, 1), None, waits=True, exchanged=exchanged)


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (([1, 2], [1, 0]), ([0, 4], [2, 4]), None),
        (([1, 2], [1, 0]), ([0, 4], [1, 4]), "rank 0 sends 6 elements to rank 1, which expects 3"),
        (([1, 2], [1, 0]), ([5, 4], [2, 4]), "rank 1 sends 15 elements to rank 0, which expects 0"),
    ],
)
def test_an_all_to_all_whose_sizes_do_not_fit_raises_and_says_which(
    pair: Pair, first: Splits, second: Splits, says: str | None
) -> None:
    enter_all_to_all(pair[0], *first)
    if says is None:
        enter_all_to_all(pair[1], *second)
        return
    with pytest.raises(CollectiveMismatch) as caught:
        enter_all_to_all(pair[1], *second)
    text = said(caught.value)
    assert says in text
    assert pair[0].events[-1].describe() in text and pair[1].events[-1].describe() in text


def test_a_circle_through_an_all_to_all_is_seen(pair: Pair) -> None:
    enter_all_to_all(pair[0], [1, 1], [1, 1])
    with pytest.raises(CollectiveMismatch) as caught:
        halves = [torch.zeros(2), torch.zeros(4)]
        pair[1].record("reduce_scatter", halves, (0, 1), "sum", "another group", waits=True)
    assert re.match(r"rank 1 waits in reduce_scatter.* for rank 0, which", said(caught.value))


def test_steps_are_counted_group_by_group(pair: Pair) -> None:
    pair[0].record("all_reduce", [torch.zeros(2)], (0, 1), "sum")
    pair[1].record("broadcast", [torch.zeros(9)], (1,), None)  # a group of its own
    pair[1].record("all_reduce", [torch.zeros(2)], (0, 1), "sum")
    with pytest.raises(CollectiveMismatch) as caught:
        pair[0].record("barrier", [], (0, 1), None)
        pair[1].record("all_reduce", [torch.zeros(2)], (0, 1), "sum")
    assert said(caught.value).startswith("collective 2 of ranks [0, 1]: rank 1 enters all_reduce")


def test_sends_and_receives_of_unknown_peers_are_noted_and_meet_nothing(pair: Pair) -> None:
    pair[0].record("send", [torch.zeros(2)], (0, 1), None)
    pair[1].record("recv", [torch.zeros(2)], (0, 1), None)
    pair[1].record("all_reduce", [torch.zeros(2)], (0, 1), "sum")
    pair[0].record("all_reduce", [torch.zeros(2)], (0, 1), "sum")
    assert [e.op for e in pair[0].events] == ["send", "all_reduce"]


def test_a_message_meets_its_own_direction_alone(pair: Pair) -> None:
    x = torch.zeros(2)
    pair[0].record("send", [x], (0, 1), None, peer=1)
    pair[1].record("send", [torch.zeros(3)], (0, 1), None, peer=0)
    pair[0].record("recv", [torch.zeros(3)], (0, 1), None, peer=1)
    pair[1].record("all_reduce", [x], (0, 1), "sum")  # counted apart from messages
    pair[0].record("all_reduce", [x], (0, 1), "sum")
    pair[1].record("recv", [x], (0, 1), None, peer=0)
    assert [(e.op, e.peer) for e in pair[1].events] == [
        ("send", 0), ("all_reduce", None), ("recv", 0)
    ]  # fmt: skip
    assert "send float32[2] to rank 1 in build" in pair[0].events[0].describe()


def test_a_message_that_is_received_as_another_is_refused(pair: Pair) -> None:
    pair[0].record("send", [torch.zeros(2, 3)], (0, 1), None, peer=1)
    pair[1].record("recv", [torch.zeros(3, 2)], (0, 1), None, peer=0)  # as many elements
    pair[0].record("send", [torch.zeros(2, 3)], (0, 1), None, peer=1)
    with pytest.raises(CollectiveMismatch) as caught:
        pair[1].record("recv", [torch.zeros(2, 2)], (0, 1), None, peer=0)
    assert said(caught.value).startswith(
        "message 2 from rank 0 to rank 1: rank 1 enters recv float32[2, 2]"
    )


def test_a_rank_waits_for_the_other_end_of_its_message_alone() -> None:
    board, memory = Board.new(3)
    os.close(memory)
    ranks = [Recorder(r, board=board, epoch=1, dispatch=False) for r in range(3)]
    for rank in range(3):
        board.begin(rank, 1)
    ranks[2].record("recv", [torch.zeros(2)], (0, 1, 2), None, peer=1)
    assert board.absent(2, 1) == [1]
    ranks[0].record("send", [torch.zeros(2)], (0, 1, 2), None, peer=2)
    assert board.absent(2, 1) == [1] and board.absent(0, 1) == [2]
    ranks[1].record("send", [torch.zeros(2)], (0, 1, 2), None, peer=2)
    assert board.absent(2, 1) == []


def test_under_a_schedule_autograd_says_what_is_forward_and_what_backward() -> None:
    recorder = Recorder(0, dispatch=False)
    recorder.phase = Phase.SCHEDULE
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda grad: recorder.record("all_reduce", [grad], (0, 1), "sum"))
    recorder.record("all_reduce", [x], (0, 1), "sum")
    recorder.record("send", [x], (0, 1), None, peer=1)
    x.sum().backward()
    assert [e.phase for e in recorder.events] == ["forward", "schedule", "backward"]


def test_a_recorder_leaves_ordinary_operations_alone() -> None:
    x = torch.randn(3, 3)
    with Recorder(0) as recorder:
        y = (x @ x).relu().sum()
    assert torch.equal(y, (x @ x).relu().sum()) and recorder.events == []


def test_what_changes_between_forward_and_backward_is_noted_with_its_line() -> None:
    recorder = Recorder(0, dispatch=False)
    w = torch.ones(3, requires_grad=True)
    for written in (False, True):
        x = torch.ones(3)
        with recorder.saved.watch(bits=True):
            y = (w * x).sum()
        if written:
            x.data.fill_(2.0)  # past autograd's own check
        y.backward()
        assert bool(recorder.saved.overwritten) == written
    assert {where.split(":")[0] for where in recorder.saved.overwritten} == {"test_trace.py"}


def test_a_gather_writes_into_its_output_and_not_into_its_input() -> None:
    recorder = Recorder(0, dispatch=False)
    part, full = torch.ones(2), torch.ones(4)
    recorder.saved.tensors = [part]
    recorder.record("all_gather", [full, part], (0, 1), None)
    recorder.saved.tensors = [full]
    recorder.record("all_gather", [full, part], (0, 1), None)
    recorder.record("all_reduce", [full], (0, 1), "sum")
    assert [e.overwrites for e in recorder.events] == [False, True, True]


def test_a_real_collective_is_seen_once_with_its_reduce_op(tmp_path: Path) -> None:
    watch_reduce_ops()
    watch_reduce_ops()  # twice is once
    store = f"file://{tmp_path}/store"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        with Recorder(0) as recorder:
            dist.all_reduce(torch.ones(2, 2), op=dist.ReduceOp.MAX)
            dist.all_gather([torch.zeros(3)], torch.ones(3))
            dist.barrier()
            dist.all_reduce(torch.ones(5))
    finally:
        dist.destroy_process_group()
    seen = [(e.op, e.reduce_op, e.shape, e.group) for e in recorder.events]
    assert seen[:2] == [("all_reduce", "max", (2, 2), (0,)), ("all_gather", None, (3,), (0,))]
    assert seen[-1] == ("all_reduce", "sum", (5,), (0,))
    assert recorder.events[0].where.startswith("test_trace.py:")


def test_reduce_ops_have_short_names() -> None:
    assert name_of(dist.ReduceOp.SUM) == "sum"
    assert name_of(dist.ReduceOp(dist.ReduceOp.AVG)) == "avg"


def test_a_witness_is_counted_by_phase_and_nothing_else_is() -> None:
    recorder = Recorder(0, dispatch=False)
    recorder.witnesses = frozenset({"aten::sin", "gemm"})
    recorder.phase = Phase.FORWARD
    with recorder:
        torch.zeros(2).sin().cos()
        recorder.count("gemm")
        recorder.phase = Phase.BACKWARD
        torch.zeros(2).sin()
        recorder.count("gelu")
    once = dict.fromkeys([(Phase.FORWARD, "aten::sin"), (Phase.FORWARD, "gemm")], 1)
    assert recorder.counted == once | {(Phase.BACKWARD, "aten::sin"): 1}
