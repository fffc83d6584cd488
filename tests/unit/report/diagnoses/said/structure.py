"""The sentences of `tpcheck/causes/structure.py`."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.report.diagnoses.said import OUT, Said
from tpcheck.causes.structure import (
    CollectiveInDtype,
    CollectivesDiffer,
    DiagnosisFailed,
    DoesMore,
    DrawnOtherwise,
    GivenUp,
    IntegersWrap,
    NotAsLaidOut,
    NothingKnown,
    OpMisregistered,
    OutsideOfItsTensors,
    PathLeftOut,
    PlanAtFault,
    ProgramsRace,
    PromiseUnkept,
    RankDied,
    RanksRaised,
    SavesTooMuch,
    SendsTooMuch,
)
from tpcheck.evidence import (
    Entered,
    MasksCounted,
    MessagesLost,
    Misheld,
    Misregistered,
    OverSaved,
    PathNotTaken,
    Race,
    Refused,
    Scene,
    Stray,
    Stuck,
    TracesDiffer,
    Undisciplined,
    Unkept,
    Wrapped,
)
from tpcheck.vocabulary import Access, Fault, Habit, Impasse, OpTest, Phase

WAITS = Stuck(Impasse.EVERY_RANK_WAITS)
GONE = Stuck(Impasse.PEER_FINISHED, peer=0)
PARTED = replace(
    GONE,
    parted=(
        Entered(1, "all_reduce in forward at a.py:3", "a.py:3"),
        Entered(0, "all_reduce in backward at a.py:9", "a.py:9"),
    ),
)
LATE = Stuck(Impasse.TOO_LONG, seconds=30.0)
AT_WORK = Scene(stack='most recent call first:\n  File "/m/mlp.py", line 6 in forward\n')
REFUSED = Refused(Entered(0, "barrier"), Entered(1, "all_reduce"), step=2, members=(0, 1))

SAID: list[Said] = [
    (RankDied(1, -9), "rank 1 died: killed by SIGKILL", {"rank": 1, "how": "killed by SIGKILL"}),
    (
        RanksRaised((0, 1), True, "KeyError", "'x'", Phase.FORWARD),
        "every rank raised KeyError: 'x' (in forward)",
        {"ranks": [0, 1]},
    ),
    (
        RanksRaised((2,), False, "ValueError", "no", Phase.BUILD, "FSDP before TP"),
        "FSDP before TP: rank 2 raised ValueError: no (in build)",
        {"ranks": [2], "row": "FSDP before TP"},
    ),
    (
        GivenUp(1, GONE, {1: "all_reduce at a.py:3"}),
        "rank 1 waits for rank 0, which finished without this collective: all_reduce at a.py:3",
        {"waiting_in": {"1": "all_reduce at a.py:3"}},
    ),
    (
        GivenUp(1, PARTED, {1: "all_reduce at a.py:9"}),
        "rank 1 enters all_reduce in forward at a.py:3 where rank 0 enters all_reduce in backward "
        "at a.py:9; in the end rank 1 waits for rank 0, which finished without this collective: "
        "all_reduce at a.py:9",
        {"waiting_in": {"1": "all_reduce at a.py:9"}},
    ),
    (
        GivenUp(0, WAITS, {0: "barrier", 1: None}),
        "every rank waits for another; rank 0 is in barrier",
        {"waiting_in": {"0": "barrier", "1": "nothing"}},
    ),
    (
        GivenUp(0, LATE, {0: None}),
        "the case took longer than 30 s; rank 0 is in no collective",
        {"waiting_in": {"0": "nothing"}},
    ),
    (
        GivenUp(3, replace(LATE, scene=AT_WORK), {0: "barrier", 3: None}),
        "the case took longer than 30 s; rank 3 is in no collective, at mlp.py:6",
        {"waiting_in": {"0": "barrier", "3": "nothing"}},
    ),
    (
        GivenUp(0, replace(LATE, absent=(1,), waits_in="barrier"), {0: "barrier", 1: "recv"}),
        "the case took longer than 30 s; rank 0 is in barrier",
        {"waiting_in": {"0": "barrier", "1": "recv"}},
    ),
    (
        GivenUp(0, replace(WAITS, finished=(2, 3)), {0: "barrier", 1: "recv"}),
        "every rank but 2,3, which have finished, waits for another; rank 0 is in barrier",
        {"waiting_in": {"0": "barrier", "1": "recv"}},
    ),
    (
        CollectivesDiffer(0, REFUSED),
        "collective 2 of ranks [0, 1]: rank 0 enters barrier, rank 1 entered all_reduce",
        {"rank": 0},
    ),
    (
        CollectivesDiffer(1, TracesDiffer((0, 1), 3, ((0, None),), {})),
        "collective 3 of the group: rank 0 ran none",
        {"rank": 1},
    ),
    (
        CollectivesDiffer(1, MessagesLost(0, 1, 2, 1)),
        "rank 0 sent 2 messages to rank 1, which received 1",
        {"rank": 1},
    ),
    (
        CollectiveInDtype("reduce_scatter", Phase.BACKWARD, "float32", "float64"),
        "reduce_scatter in backward runs in float32, float64 is due",
        {
            "reason": "reduce_scatter in backward runs in float32, float64 is due",
            "dtype": "float32",
            "expected_dtype": "float64",
        },
    ),
    (
        PathLeftOut(PathNotTaken("all_gather", Phase.FORWARD, 1, 2)),
        "the path was not taken: all_gather ran 1 time in forward, of 2 due",
        {},
    ),
    (
        SendsTooMuch(Phase.FORWARD, 8.0, 4.0, {"all_gather": 3, "reduce_scatter": 1}, 1),
        "forward sends 8 elements per rank, the budget is 4 "
        "(3 × all_gather, 1 × reduce_scatter in 1 microbatch)",
        {"phase": "forward", "ran": {"all_gather": 3, "reduce_scatter": 1}, "passes": 1,
         "unit": "elements per rank"},
    ),
    (SavesTooMuch(OverSaved(16, 8)), "16 elements saved for backward, of which 8 would do", {}),
    (
        NotAsLaidOut(("a", "b"), "a", Misheld(Fault.WHOLE, (2, 1), (1, 1))),
        "a, b: replicated [2, 1], the layout shards it [1, 1]",
        {"tensors": ["a", "b"]},
    ),
    (
        NotAsLaidOut(("a",), "a", Misheld(Fault.WHOLE, axes="dp, tp")),
        "a: replicated along dp, tp, the layout shards it",
        {"tensors": ["a"]},
    ),
    (
        NotAsLaidOut(
            ("checkpoint",), "checkpoint", Misheld(Fault.READ, storage=8192, expected=2048)
        ),
        "the loader reads 8,192 bytes of the checkpoint's files; the rank's part is 2,048",
        {"tensors": ["checkpoint"]},
    ),
    (
        NotAsLaidOut(("a",), "a", Misheld(Fault.STORAGE)),
        "a: a view into the unsharded tensor, which stays in memory",
        {"tensors": ["a"]},
    ),
    (
        NotAsLaidOut(("a",), "a", Misheld(Fault.STORAGE, inside="norm")),
        "a: the unsharded tensor lies in the storage of norm, which stays in memory",
        {"tensors": ["a"]},
    ),
    (
        NotAsLaidOut(
            ("a",), "a", Misheld(Fault.PLACEMENT, placement="X", expected_placement="Y")
        ),
        "a: X is not the layout's Y",
        {"tensors": ["a"]},
    ),
    (
        NotAsLaidOut(("a",), "a", Misheld(Fault.UNEXPECTED)),
        "the reference has no parameter 'a'",
        {"tensors": ["a"]},
    ),
    (PlanAtFault(("a", "b"), "they are one"), "they are one", {"tensors": ["a", "b"]}),
    (NothingKnown(OUT), "output is wrong; none of the known causes fits", {}),
    (NothingKnown(None), "no mismatch was left to explain", {}),
    (
        DiagnosisFailed("RuntimeError", "a view", "by_values", "order.py"),
        "the diagnosis itself failed (RuntimeError in by_values of order.py: 'a view'): "
        "please report it",
        {"failed": True},
    ),
    (
        OutsideOfItsTensors(Stray("k", 7, (1, 0, 0), Access.STORE, "", 0, 1)),
        "k, line 7: program (1, 0, 0) stores outside of every tensor of its launch (none is near, "
        "1 lane)",
        {},
    ),
    (
        IntegersWrap(Wrapped("k", 7, (1, 0, 0), "mul", 32)),
        "k, line 7: mul of int32 overflows in program (1, 0, 0)",
        {},
    ),
    (
        PromiseUnkept(Unkept("k", 7, (1, 0, 0), "assume", ())),
        "k, line 7: tl.assume is promised and does not hold in program (1, 0, 0)",
        {},
    ),
    (
        ProgramsRace(Race("k", 7, "y", 8, ((0, 0, 0), (1, 0, 0)), Access.LOAD, Access.ATOMIC)),
        "k, line 7: program (0, 0, 0) has an atomic in y (8 bytes from its start) where program "
        "(1, 0, 0) loads",
        {},
    ),
    (
        ProgramsRace(Race("k", 7, "y", 8, ((0, 0, 0), (1, 0, 0)), Access.LOAD)),
        "k, line 7: program (0, 0, 0) stores into y (8 bytes from its start) where program "
        "(1, 0, 0) loads",
        {},
    ),
    (
        DoesMore("x", Undisciplined(Habit.CHANGES_INPUT, None, 4)),
        "x: the call changes 4 bytes of memory beside it",
        {"tensor": "x"},
    ),
    (
        OpMisregistered(Misregistered("m::f", OpTest.SCHEMA, "RuntimeError", "x was mutated")),
        "m::f does not do what its schema says (test_schema of torch.library.opcheck): "
        "RuntimeError: x was mutated",
        {},
    ),
    (
        DrawnOtherwise("mask0", MasksCounted(0, 2)),
        "mask0: a forward draws 0 random masks, the reference's 2",
        {"name": "mask0"},
    ),
]  # fmt: skip
