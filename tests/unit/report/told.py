"""What reports have said of kernels and of random masks, as JSON."""

from __future__ import annotations

from typing import Any

from tpcheck.evidence import (
    Evidence,
    MaskOfOtherShape,
    MaskRedrawn,
    MaskRepeated,
    MasksAgree,
    MasksCounted,
    MasksDiffer,
    Misregistered,
    OtherRate,
    Race,
    Stray,
    Undisciplined,
    Unkept,
    Wrapped,
)
from tpcheck.vocabulary import Access, Habit, OpTest

KERNELS: list[tuple[Evidence, dict[str, Any]]] = [
    (
        Stray("k", 7, (1, 0, 0), Access.LOAD, "x", -4, 2),
        {
            "kernel": "k",
            "line": 7,
            "program": [1, 0, 0],
            "access": "load",
            "tensor": "x",
            "offset": -4,
            "lanes": 2,
            "reason": "k, line 7: program (1, 0, 0) loads outside of every tensor of its launch "
            "(-4 bytes from the start of x, 2 lanes)",
        },
    ),
    (
        Wrapped("k", 7, (1, 0, 0), "mul", 32),
        {
            "kernel": "k",
            "line": 7,
            "program": [1, 0, 0],
            "operation": "mul",
            "bits": 32,
            "reason": "k, line 7: mul of int32 overflows in program (1, 0, 0)",
        },
    ),
    (
        Unkept("k", 7, (1, 0, 0), "multiple_of", (16, 1)),
        {
            "kernel": "k",
            "line": 7,
            "program": [1, 0, 0],
            "promise": "multiple_of",
            "values": [16, 1],
            "reason": "k, line 7: tl.multiple_of of 16, 1 is promised and does not hold in program "
            "(1, 0, 0)",
        },
    ),
    (
        Race("k", 7, "y", 8, ((0, 0, 0), (1, 0, 0)), Access.STORE),
        {
            "kernel": "k",
            "line": 7,
            "tensor": "y",
            "offset": 8,
            "programs": [[0, 0, 0], [1, 0, 0]],
            "other": "store",
            "access": "store",
            "reason": "k, line 7: program (0, 0, 0) stores into y (8 bytes from its start) where "
            "program (1, 0, 0) stores something else",
        },
    ),
    (
        Undisciplined(Habit.CHANGES_INPUT, 3),
        {
            "habit": "changes-input",
            "elements": 3,
            "beside": 0,
            "raised": "",
            "reason": "the call changes 3 elements",
        },
    ),
    (
        Undisciplined(Habit.NOT_REPEATED, raised="raised RuntimeError: no"),
        {
            "habit": "not-repeated",
            "beside": 0,
            "raised": "raised RuntimeError: no",
            "reason": "run again, it raised RuntimeError: no",
        },
    ),
    (
        Misregistered("m::f", OpTest.FAKE, "TypeError", "no"),
        {
            "op": "m::f",
            "test": "test_faketensor",
            "type": "TypeError",
            "reason": "m::f has no fake kernel that says what it gives (test_faketensor of "
            "torch.library.opcheck): TypeError: no",
        },
    ),
]

AT = {"where": "f.py:3", "module": "mlp"}
MASKS: list[tuple[Evidence, dict[str, Any]]] = [
    (
        MasksDiffer((0, 1), (1,), **AT),
        {
            "ranks": [0, 1],
            "differ_from_first": [1],
            **AT,
            "reason": "ranks [0, 1] have the same elements, and ranks [1] draw another mask for "
            "them (f.py:3 of mlp)",
        },
    ),
    (
        MasksAgree((0, 1), (2,), **AT),
        {
            "ranks": [0, 1],
            "dims": [2],
            **AT,
            "reason": "ranks [0, 1] have different parts of a tensor (dim 2 is split) and draw the "
            "same mask for them (f.py:3 of mlp)",
        },
    ),
    (
        MaskRepeated("mask0", **AT),
        {"earlier": "mask0", **AT, "reason": "the very mask that mask0 was (f.py:3 of mlp)"},
    ),
    (
        MaskRedrawn("f.py:3", ""),
        {
            "where": "f.py:3",
            "module": "",
            "reason": "drawn in backward, and not as a forward drew it that is computed again "
            "there (f.py:3)",
        },
    ),
    (
        OtherRate(0.8, 0.9, **AT),
        {
            "chance": 0.8,
            "expected": 0.9,
            **AT,
            "reason": "drawn with chance 0.8, the reference's is 0.9 (f.py:3 of mlp)",
        },
    ),
    (
        MaskOfOtherShape((2, 3), (3, 2), **AT),
        {
            "shape": [2, 3],
            "expected_shape": [3, 2],
            **AT,
            "reason": "of shape [2, 3], which is no part of the reference's [3, 2] (f.py:3 of mlp)",
        },
    ),
    (
        MasksCounted(1, 2),
        {"drawn": 1, "expected": 2, "reason": "a forward draws 1 random mask, the reference's 2"},
    ),
]
