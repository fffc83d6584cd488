"""Which accesses of a launch's programs race."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tpcheck.evidence import Race
from tpcheck.kernels.clocks import Clocks
from tpcheck.kernels.races import Seen, races
from tpcheck.kernels.view import View
from tpcheck.vocabulary import Access

STORE, LOAD, ATOMIC = Access.STORE, Access.LOAD, Access.ATOMIC
#: What a program does: an access of these numbers' elements, with what a store leaves there; or
#: an atomic that orders, at an address of its own.
Did = tuple[Access, Sequence[int], Sequence[float] | None] | str
VIEW = View("x", 4096, 4, (4096,), (1,))


def run(programs: Sequence[Sequence[Did]], size: int = 4) -> list[Race]:
    """Each program in its turn; of bytes of a tensor of float32."""
    clocks, accesses = Clocks(), []
    for number, does in enumerate(programs):
        program = (number, 0, 0)
        for did in does:
            if isinstance(did, str):
                tell = clocks.atomic(program, np.array([0]), acquires=True, releases=True)
                if tell is not None:
                    tell()
                continue
            what, elements, values = did
            at = 4096 + size * np.array(elements, np.int64)
            left: Any = None
            if values is not None:
                left = np.float32(values).reshape(-1, 1).view(np.uint8)
            accesses.append(Seen(what, program, 7, at, size, clocks.now(program), left))
    return races("kernel", [VIEW], accesses)


@pytest.mark.parametrize(
    ("programs", "by", "other", "offset"),
    [
        ([[(STORE, [0, 1], [1, 2])], [(STORE, [1, 2], [3, 4])]], STORE, STORE, 4),
        ([[(STORE, [0, 1], [1, 2])], [(STORE, [0, 1], [1, 3])]], STORE, STORE, 4),
        ([[(STORE, [0], [1])], [(LOAD, [0], None)]], STORE, LOAD, 0),
        ([[(LOAD, [0], None)], [(STORE, [0], [1])]], STORE, LOAD, 0),
        ([[(STORE, [0], [1])], [(ATOMIC, [0], None)]], STORE, ATOMIC, 0),
        ([[(ATOMIC, [0], None)], [(LOAD, [0], None)]], ATOMIC, LOAD, 0),
        ([[(LOAD, [0], None)], [(ATOMIC, [0], None)]], ATOMIC, LOAD, 0),
        ([["sync"], [(STORE, [0], [1])], ["sync", (LOAD, [0], None)]], STORE, LOAD, 0),
        ([["sync", (STORE, [0], [1])], ["sync", (LOAD, [0], None)]], STORE, LOAD, 0),
        ([[(STORE, [0], [1]), "sync"], [(LOAD, [0], None), "sync"]], STORE, LOAD, 0),
    ],
)
def test_programs_that_nothing_orders_race(
    programs: Any, by: Access, other: Access, offset: int
) -> None:
    (race,) = run(programs)
    assert (race.access, race.other, race.offset) == (by, other, offset)
    assert (race.tensor, race.kernel, race.line) == ("x", "kernel", 7)
    assert len({program[0] for program in race.programs}) == 2


@pytest.mark.parametrize(
    "programs",
    [
        [[(STORE, [0, 1], [1, 2])], [(STORE, [2, 3], [3, 4])]],
        [[(STORE, [0, 2], [1, 2])], [(STORE, [1, 3], [3, 4])]],
        [[(STORE, [0], [1]), (LOAD, [0], None)], [(LOAD, [1], None)]],
        [[(STORE, [0], [1])], [(STORE, [0], [1])]],
        [[(STORE, [0], [np.nan])], [(STORE, [0], [np.nan])]],
        [[(ATOMIC, [0], None)], [(ATOMIC, [0], None)]],
        [[(LOAD, [0], None)], [(LOAD, [0], None)]],
        [[(STORE, [0], [1]), "sync"], ["sync", (LOAD, [0], None), (STORE, [0], [2])]],
        [[(ATOMIC, [0], None), "sync"], ["sync", (LOAD, [0], None)]],
        [[(STORE, [n], [n]), "sync"] for n in range(40)] + [["sync", (LOAD, range(40), None)]],
        [["sync", (LOAD, range(9), None), (STORE, range(9), [n] * 9), "sync"] for n in range(40)],
    ],
    ids=[
        "apart",
        "between",
        "own",
        "same",
        "same NaN",
        "atomics",
        "loads",
        "ordered",
        "atomic, ordered",
        "the last one",
        "a lock",
    ],
)
def test_what_can_not_tell_the_order_of_programs_is_no_race(programs: Any) -> None:
    assert run(programs) == []


def test_one_race_is_told_of_a_tensor_among_many() -> None:
    (race,) = run([[(STORE, range(1000), [n] * 1000)] for n in range(60)])
    assert race.programs == ((0, 0, 0), (1, 0, 0)) and race.offset == 0


def test_bytes_of_one_element_meet() -> None:
    """A program stores four bytes, and another one the last two of them."""
    clocks = Clocks()
    four, two = np.zeros((1, 4), np.uint8), np.ones((1, 2), np.uint8)
    at = np.array([4096])
    first = Seen(STORE, (0, 0, 0), 7, at, 4, clocks.now((0, 0, 0)), four)
    for start, meets in ((2, True), (4, False)):
        second = Seen(STORE, (1, 0, 0), 8, at + start, 2, clocks.now((1, 0, 0)), two)
        assert bool(races("kernel", [VIEW], [first, second])) is meets
