"""What reports have said of kernels, as JSON."""

from __future__ import annotations

from typing import Any

from tpcheck.evidence import Evidence, Misregistered, Race, Stray, Undisciplined, Unkept, Wrapped
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
            "reason": "the call changes 3 elements",
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
