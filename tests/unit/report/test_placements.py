"""Every reason for a parameter's placement has words."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tpcheck.figures import plan_reasons as reasons
from tpcheck.figures.plan_causes import Unfed
from tpcheck.figures.plan_reasons import Reason
from tpcheck.placement import Replicate, Shard
from tpcheck.report.placements import placed, reason


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (reasons.ShardedBy("colwise", "up"), "colwise ('up')"),
        (
            reasons.ShardedBy("colwise", "up", reasons.UnevenSplit(7, 4, 3)),
            "colwise ('up'), uneven: 4 of 7 on the first rank, 3 on the last",
        ),
        (reasons.KeptBy("replicate", "norm"), "kept replicated by replicate ('norm')"),
        (reasons.BiasAfterSum("down"), "bias of a row split, added once after the sum ('down')"),
        (reasons.Declared("reduced"), "declared reduced"),
        (reasons.ShardsNothing("all_reduce", "mlp"), "all_reduce ('mlp') shards nothing"),
        (
            reasons.LeftOut(("layers.0.up.weight",)),
            "left out, while layers.0.up.weight of the same kind is sharded",
        ),
        (
            reasons.LeftOut(("layers.0.up.weight", "layers.2.up.weight")),
            "left out, while layers.0.up.weight, layers.2.up.weight of the same kind are sharded",
        ),
        (reasons.Unnamed(), "no entry names it"),
        (reasons.Unnamed("upp"), "no entry names it ('upp' matches nothing)"),
    ],
)
def test_what_is_said(why: Any, words: str) -> None:
    assert reason(why) == words


def test_every_reason_has_words() -> None:
    assert set(reason.registry) - {object} == set(get_args(Reason))


def test_a_reason_without_words_is_seen() -> None:
    with pytest.raises(TypeError, match="Unfed has no words"):
        reason(Unfed())  # type: ignore[arg-type]


def test_places_are_in_torchs_words() -> None:
    assert [placed(p) for p in (Shard(1), Replicate(), None)] == [
        "Shard(1)",
        "Replicate()",
        "whole",
    ]
