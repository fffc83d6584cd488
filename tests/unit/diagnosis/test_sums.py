"""Whether the terms of a sum were added up, by what ranks hold after it and what they entered."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tpcheck import Case, Replicate
from tpcheck.bounds.spread import Spread
from tpcheck.diagnosis.facts import Local
from tpcheck.diagnosis.sums import Due, is_taken
from tpcheck.event import Event
from tpcheck.protocol.problem import Target
from tpcheck.vocabulary import Kind, Phase

CASE = Case({}, dtype="float64", mesh={"tp": 2})


def local(value: Tensor, *held: Tensor) -> Local:
    sigma = torch.full(value.shape, 1e-9, dtype=torch.float64)
    spread = Spread(sigma, 100, 100)
    target = Target(Kind.OUTPUT, "y", Replicate(), value.dtype, value, spread)
    each = dict(enumerate(held))
    return Local(
        target, CASE, [*each], each, dict.fromkeys(each, value), dict.fromkeys(each, sigma)
    )


WHOLE = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
TERMS = local(WHOLE, 0.25 * WHOLE, 0.75 * WHOLE)
HALVES = local(WHOLE, 0.5 * WHOLE, 0.5 * WHOLE)
NAN = torch.full_like(WHOLE, torch.nan)


@pytest.mark.parametrize(
    ("held", "before", "taken"),
    [
        ((7 * WHOLE, 7 * WHOLE), TERMS, True),
        ((0 * WHOLE, 0 * WHOLE), TERMS, True),
        ((7 * WHOLE, 6 * WHOLE), TERMS, False),
        ((7 * WHOLE, 7 * WHOLE), HALVES, False),  # what each makes of the same
        ((WHOLE.clone().fill_(1.0),) * 2, HALVES, True),  # some of it is right
        ((NAN, NAN), TERMS, False),  # each by itself, perhaps
        ((NAN.index_fill(0, torch.tensor(0), 7.0),) * 2, TERMS, True),
    ],
)
def test_ranks_hold_the_same_after_it(held: tuple[Tensor, ...], before: Local, taken: bool) -> None:
    assert is_taken(local(WHOLE, *held), before) is taken


def event(op: str = "all_reduce", **other: Any) -> Event:
    numbers: dict[str, Any] = {"elements": 3, "phase": Phase.FORWARD, "module": "block"} | other
    about = {"reduce_op": "sum", "group": (0, 1), "dtype": "float64", "shape": (3,), "bytes": 24}
    return Event(op=op, where="", **about, **numbers)


@pytest.mark.parametrize(
    ("events", "taken"),
    [
        ([event()], True),
        ([event("reduce_scatter", module="block.down")], True),
        ([event("all_gather")], False),
        ([event(elements=4)], False),
        ([event(phase=Phase.BACKWARD)], False),
        ([event(module="other")], False),
        ([], False),
    ],
)
def test_it_was_entered(events: list[Event], taken: bool) -> None:
    due = Due(Phase.FORWARD, 3, [3, 4], {"block", "block.down"})
    assert due.are_taken(CASE, [events, [event()]]) is taken
    assert not due.are_taken(CASE, [])
    two = Due(Phase.FORWARD, 3, [3, 3], {"block", "block.down"})
    assert not two.are_taken(CASE, [events, [event(), event()]])
    assert two.are_taken(CASE, [[event(), *events], [event()] * 2]) is taken
