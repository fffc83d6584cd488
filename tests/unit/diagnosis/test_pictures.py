"""The map of an error over a tensor, from what the ranks hold of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tpcheck import Blocks, Case, Heads, Shard
from tpcheck.bounds.spread import Spread
from tpcheck.diagnosis import pictures
from tpcheck.diagnosis.facts import Local
from tpcheck.event import Event
from tpcheck.evidence.pictures import ErrorMap
from tpcheck.placement import Entry, Replicate, take
from tpcheck.protocol.problem import Target
from tpcheck.verdict import CaseResult
from tpcheck.vocabulary import Kind, Phase


def drawn(
    shape: tuple[int, ...],
    entry: Entry,
    edits: Mapping[int, Callable[[Tensor], object]],
    tp: int = 2,
    sigma: float = 1.0,
) -> ErrorMap:
    """The map of zeros that each rank of `edits` has edited, errors being in σ's bounds."""
    case, full = Case(mesh={"tp": tp}), torch.zeros(shape, dtype=torch.float64)
    spread = Spread(torch.full_like(full, sigma), 100, 100)
    target = Target(Kind.OUTPUT, "y", entry, torch.float64, full, spread)

    def parts(of: Tensor) -> dict[int, Tensor]:
        return {r: take(of, entry, case=case, rank=r).clone() for r in range(tp)}

    actual = parts(full)
    for rank, edit in edits.items():
        edit(actual[rank])
    local = Local(target, case, list(range(tp)), actual, parts(full), parts(spread.sigma))
    return pictures._map(local)


def test_parts_are_put_together() -> None:
    found = drawn((2, 4), Shard(1), {1: lambda t: t.fill_(1e6)})
    (panel,) = found.panels
    assert panel.ranks == (0, 1) and (found.row_dim, found.column_dim) == (0, 1)
    assert [[cell is not None and cell > 1 for cell in line] for line in panel.cells] == [
        [False, False, True, True]
    ] * 2
    assert [(piece.ranks, piece.columns) for piece in found.pieces] == [
        ((0,), ((0, 2),)),
        ((1,), ((2, 4),)),
    ]


def test_copies_have_panels_of_their_own_unless_they_are_alike() -> None:
    same = drawn((4,), Replicate(), {0: lambda t: t.fill_(1e6), 1: lambda t: t.fill_(1e6)})
    assert [panel.ranks for panel in same.panels] == [(0, 1)]
    other = drawn((4,), Replicate(), {1: lambda t: t[3:].fill_(1e6)})
    assert [panel.ranks for panel in other.panels] == [(0,), (1,)]
    assert other.panels[0].cells == ((0.0,) * 4,)
    heads = drawn((4, 2), Heads(0, 2), {3: lambda t: t.fill_(1e6)}, tp=4)
    assert [panel.ranks for panel in heads.panels] == [(0, 2), (1, 3)]


def test_a_rank_of_a_fused_weight_has_a_run_of_each_block() -> None:
    entry = Blocks(0, ((4, Shard(0)), (2, Shard(0))))
    found = drawn((6, 3), entry, {})
    assert {piece.ranks[0]: piece.rows for piece in found.pieces} == {
        0: ((0, 2), (4, 5)),
        1: ((2, 4), (5, 6)),
    }


def test_the_sharded_dim_is_drawn_and_of_others_the_largest_error_is() -> None:
    found = drawn((9, 4, 8), Shard(1), {0: lambda t: t[7, 1, 5].fill_(1e6)})
    assert (found.row_dim, found.column_dim) == (0, 1)
    found = drawn((2, 4, 8), Shard(1), {0: lambda t: t[1, 1, 5].fill_(1e6)})
    assert (found.row_dim, found.column_dim) == (1, 2)
    assert found.panels[0].cells[1][5] > 1  # type: ignore[operator]
    assert sum(cell != 0 for line in found.panels[0].cells for cell in line) == 1


def test_a_large_tensor_is_made_smaller_and_one_wrong_element_stays() -> None:
    found = drawn((1000, 70), Replicate(), {r: lambda t: t[999, 69].fill_(1e6) for r in (0, 1)})
    (panel,) = found.panels
    assert len(panel.cells) == len(panel.cells[0]) == pictures.SIDE
    wrong = [(i, j) for i, line in enumerate(panel.cells) for j, cell in enumerate(line) if cell]
    assert wrong == [(63, 63)]
    two = drawn((1000, 70), Replicate(), {0: lambda t: t[0].fill_(1e6)})
    assert len(two.panels) == 2 and len(two.panels[0].cells) == pictures.OF_PANELS


def test_nan_infinite_and_unjudged_cells() -> None:
    odd = drawn((3,), Replicate(), {r: lambda t: t[1:2].fill_(math.nan) for r in (0, 1)})
    assert math.isnan(odd.panels[0].cells[0][1])  # type: ignore[arg-type]
    exact = drawn((2,), Replicate(), {r: lambda t: t[:1].fill_(1e-9) for r in (0, 1)}, sigma=0.0)
    assert exact.panels[0].cells == ((math.inf, 0.0),)
    free = drawn((2,), Replicate(), {0: lambda t: t.fill_(9)}, sigma=math.inf)
    assert free.panels[0].cells == ((None, None),)


def test_ranks_that_entered_nothing_are_told_and_those_that_failed_are_not() -> None:
    event = Event("all_reduce", "sum", (0, 2), "float64", (2,), 2, 16, Phase.FORWARD, "a.py:1")
    many = [event] * (pictures.EVENTS + 3)
    result = CaseResult(Case(), "gloo", trace=[[], many], ended=[0, 2])
    found = pictures.collectives(result)
    assert found.events == (event,) and found.left_out == 3
    assert found.ranks == {0: (), 2: (0,) * pictures.EVENTS}
