"""Hypotheses about norms, and what is clipped by them, on a mesh whose axes are of one size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.unit.diagnosis.edits import Edit, Ranks, change, examine, traced
from tpcheck import Case, Layout, Norm, Shard, Spec
from tpcheck.causes.norms import NormCounts, NotClipped
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Entry, take
from tpcheck.protocol.conventions import LEARNING_RATE
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Counted, Kind, Phase

CASE = Case(dims={"hidden": 8}, mesh={"dp": 2, "tp": 2}, seed=3)
EIGHT = replace(CASE, mesh={"dp": 4, "tp": 2})
DP, TP, WORLD = [[0, 2], [1, 3]], [[0, 1], [2, 3]], [[0, 1, 2, 3]]
#: Whole along dp, and cut along it, as by FSDP.
WHOLE: dict[str, Entry] = {"up.weight": Shard(0), "down.weight": Shard(1)}
CUT: dict[str, Entry] = {
    "up.weight": {"tp": Shard(0), "dp": Shard(0)},
    "down.weight": {"tp": Shard(1), "dp": Shard(0)},
    "down.bias": {"dp": Shard(0)},
}


class Bent(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, hidden, bias=False), nn.Linear(hidden, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(torch.relu(self.up(x)))
        return y


def spec(params: dict[str, Entry], order: float = 2.0, most: float = 100.0) -> Spec:
    return Spec(
        "bent",
        lambda space: None,
        lambda case: Bent(case["hidden"]),
        lambda case, draw: {"x": draw("x", 3, 4)},
        lambda case: Layout(params=params),
        dp_gradients="mean",
        norm=Norm(order, (most,)),
    )


#: Name → rank → its part of the gradient.
Parts = dict[str, dict[int, Tensor]]


def norm_of(how: Callable[[Parts, int], float], *only: int) -> Edit:
    """Each rank's norm, or that of those in `only`, is what `how` makes of the parts."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        of = {t.name: t for t in posed.problems[0].targets if t.kind is Kind.PARAM_GRAD}
        parts = {
            name: {r: take(t.value, t.entry, case=posed.case, rank=r) for r in ranks}
            for name, t in of.items()
        }
        for rank in only or ranks:
            ranks[rank]["grad_norm/norm"] = torch.tensor(how(parts, rank), dtype=torch.float64)

    return edit


def power(parts: Parts, ranks: Sequence[int], order: float, share: float = 1.0) -> float:
    """Σ|g|^p of what these ranks have: of the bias, which all along tp have, a share."""
    counted = {name: share if name == "down.bias" else 1.0 for name in parts}
    each = [counted[n] * of[r].abs().pow(order).sum() for n, of in parts.items() for r in ranks]
    return float(sum(each))


def whole(parts: Parts, times: float, *, ranks: Sequence[int] = (0, 1)) -> float:
    """The 2-norm, where these ranks have everything, of so many times the powers."""
    return math.sqrt(times * power(parts, ranks, 2.0, 0.5))


def cause(named: Diagnosis) -> NormCounts:
    assert isinstance(named.cause, NormCounts), named
    return named.cause


@pytest.mark.parametrize(
    ("exchanged", "axes"),
    [
        ([TP, TP], ("tp",)),
        ([TP, DP], ("dp",)),
        ([WORLD], ("dp",)),  # the sum over tp is due
        ([TP, TP, DP], ("dp", "tp")),
        ([], ("dp", "tp")),  # nothing is known
    ],
    ids=str,
)
def test_a_sum_that_is_taken_again_is_over_an_axis_that_was_summed_over(
    exchanged: list[list[list[int]]], axes: tuple[str, ...]
) -> None:
    trace = traced(*exchanged, phase=Phase.STEP)
    twice = norm_of(lambda parts, rank: whole(parts, 2.0))
    named = examine(twice, spec=spec(WHOLE), case=CASE, trace=trace)
    assert (cause(named).counted, cause(named).axes) == (Counted.AGAIN, axes)


@pytest.mark.parametrize("clip", [[TP], [TP, TP]], ids=["alone", "and a flag"])
def test_a_number_that_was_summed_before_clipping_counts(clip: list[list[list[int]]]) -> None:
    """As squares that `finalize` has summed; what clipping sends over tp is due, or a flag."""
    events = zip(traced(DP), traced(*clip, phase=Phase.STEP), strict=True)
    trace = [before + after for before, after in events]
    twice = norm_of(lambda parts, rank: whole(parts, 2.0))
    named = examine(twice, spec=spec(WHOLE), case=CASE, trace=trace)
    assert cause(named).counted == Counted.AGAIN and "dp" in cause(named).axes


def test_under_fsdp_one_sum_over_dp_is_due() -> None:
    twice = norm_of(lambda parts, rank: whole(parts, 2.0, ranks=range(4)))
    for exchanged, axis in [([DP, TP, TP], "tp"), ([DP, TP, DP], "dp")]:
        trace = traced(*exchanged, phase=Phase.STEP)
        named = examine(twice, spec=spec(CUT), case=CASE, trace=trace)
        assert (cause(named).counted, cause(named).axes) == (Counted.AGAIN, (axis,))


def test_some_ranks_along_dp_have_no_name_of_their_own() -> None:
    """Replicas of HSDP: tp is as large, and summed over once, as is due."""
    pairs, tp = [[k, k + 4] for k in range(4)], [[k, k + 1] for k in range(0, 8, 2)]
    trace = traced(tp, pairs, phase=Phase.STEP)
    twice = norm_of(lambda parts, rank: whole(parts, 2.0))
    named = examine(twice, spec=spec(WHOLE), case=EIGHT, trace=trace)
    assert (cause(named).counted, cause(named).group) == (Counted.AGAIN, (0, 4))


@pytest.mark.parametrize("times", [2.0, 4.0])
def test_what_nobody_summed_was_not_summed_again(times: float) -> None:
    """Nor is a norm that is dp or tp times what it should be one of other data."""
    trace = traced(TP, phase=Phase.STEP)
    edit = norm_of(lambda parts, rank: whole(parts, times))
    assert examine(edit, spec=spec(WHOLE), case=CASE, trace=trace).code == "unclassified"


def test_norms_that_are_whole_are_added_up() -> None:
    trace = traced(TP, DP, phase=Phase.STEP)
    edit = norm_of(lambda parts, rank: whole(parts, 4.0))
    named = examine(edit, spec=spec(WHOLE), case=CASE, trace=trace)
    assert (cause(named).counted, cause(named).axes) == (Counted.SUM_OF_RANKS, ("dp",))


@pytest.mark.parametrize("order", [2.0, 3.0, math.inf])
def test_norms_that_are_added_up_along_an_axis(order: float) -> None:
    def added(parts: Parts, rank: int) -> float:
        if order == math.inf:
            largest = [max(float(of[r].abs().max()) for of in parts.values()) for r in range(4)]
            return max(largest[:2]) + max(largest[2:])
        return sum(power(parts, own, order, 0.5) ** (1 / order) for own in ([0, 1], [2, 3]))

    named = examine(norm_of(added), spec=spec(CUT, order), case=CASE)
    assert (cause(named).counted, cause(named).axes) == (Counted.SUM_OF_RANKS, ("dp",))


def test_a_mean_of_powers() -> None:
    mean = norm_of(lambda parts, rank: whole(parts, 0.5, ranks=range(4)))
    trace = traced(TP, DP, phase=Phase.STEP)
    named = examine(mean, spec=spec(CUT), case=CASE, trace=trace)
    assert (named.code, cause(named).axes) == ("averaged-not-summed", ("dp", "tp"))
    only = traced(DP, phase=Phase.STEP)
    assert cause(examine(mean, spec=spec(CUT), case=CASE, trace=only)).axes == ("dp",)


def test_the_sum_along_one_axis_where_copies_along_the_other_count_by_their_share() -> None:
    """On one dp coordinate alone, so that it is said where."""

    def along_dp(parts: Parts, rank: int) -> float:
        return math.sqrt(power(parts, (rank, (rank + 2) % 4), 2.0, 0.5))

    named = examine(norm_of(along_dp, 2, 3), spec=spec(CUT), case=CASE)
    assert (cause(named).counted, cause(named).axes) == (Counted.ONE_AXIS, ("dp",))
    assert cause(named).on == (2, 3)


def test_what_is_said_of_one_dp_coordinate_is_so_on_the_others() -> None:
    own = norm_of(lambda parts, rank: whole(parts, 1.0, ranks=[rank]), 0, 1)
    named = examine(own, spec=spec(WHOLE), case=CASE)
    assert (cause(named).counted, cause(named).on) == (Counted.OWN, (0, 1))
    other = norm_of(lambda parts, rank: whole(parts, 1.7), 2, 3)
    assert examine(own, other, spec=spec(WHOLE), case=CASE).code == "unclassified"


def test_a_sum_over_ranks_that_are_none_of_the_axes() -> None:
    """Under HSDP over the replicas in place of the shards: here of four shards the half."""
    pairs, tp = [[k, k + 4] for k in range(4)], [[k, k + 1] for k in range(0, 8, 2)]
    half = norm_of(
        lambda parts, rank: whole(parts, 1.0, ranks=(0, 1, 4, 5) if rank % 4 < 2 else (2, 3, 6, 7))
    )
    named = examine(half, spec=spec(CUT), case=EIGHT, trace=traced(pairs, tp, phase=Phase.STEP))
    assert (cause(named).counted, cause(named).group) == (Counted.SOME_RANKS, (0, 1, 4, 5))
    named = examine(half, spec=spec(CUT), case=EIGHT, trace=traced(tp, phase=Phase.STEP))
    assert not isinstance(named.cause, NormCounts), named


def unclipped(*on: int) -> Edit:
    """What a step by gradients as they were leaves on these ranks."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        gradients = {t.name: t for t in problem.targets if t.kind is Kind.PARAM_GRAD}
        for name, of in gradients.items():
            left = problem.params[name].double() - LEARNING_RATE * of.value
            for rank in on:
                part = take(left, of.entry, case=posed.case, rank=rank)
                ranks[rank][f"param/{name}"] = part.clone()

    return edit


@pytest.mark.parametrize("params", [CUT, WHOLE], ids=["cut", "whole"])
def test_one_dp_coordinate_does_not_clip(params: dict[str, Entry]) -> None:
    named = examine(unclipped(2, 3), spec=spec(params, most=0.01), case=CASE)
    assert isinstance(named.cause, NotClipped), named
    assert named.cause.ranks == (2, 3)


def test_ranks_that_clip_otherwise_are_not_ranks_that_do() -> None:
    otherwise = change("param/down.bias", lambda old, r: 1.7 * old[r], 0, 1)
    named = examine(unclipped(2, 3), otherwise, spec=spec(CUT, most=0.01), case=CASE)
    assert not isinstance(named.cause, NotClipped), named


def test_that_nobody_clips_is_not_said_of_some_ranks() -> None:
    """Of whom another has no part of the parameter that is asked about first."""
    few = replace(CASE, dims={"hidden": 2})
    named = examine(unclipped(0, 1, 2, 3), spec=spec(CUT, most=0.01), case=few)
    assert not isinstance(named.cause, NotClipped), named
