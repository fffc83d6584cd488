"""Ids of a sharded vocabulary, with those at the ends of each rank's range among them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tpcheck.case import Case
from tpcheck.placement import Shard


def edge_ids(name: str, case: Case, draw: Any, vocab: int) -> Tensor:
    """ids [B, S] below `vocab`: random ones, the first and last of each rank's range among them."""
    tp = case.tp
    ids: Tensor = draw.integers(name, 0, vocab, case["batch"], case["seq"])
    borders = sorted({i for r in range(tp) for i in _ends(vocab, tp, r)})
    flat = ids.view(-1)
    start = int(draw.integers("first border", 0, len(borders), 1))
    for slot in range(0, flat.numel(), 2):
        flat[slot] = borders[(start + slot // 2) % len(borders)]
    return ids


def edge_targets(case: Case, draw: Any, vocab: int, *, ignored: int | None) -> Tensor:
    """targets [B, S], as `edge_ids`; where the case has `ignored`, some of them are that."""
    targets = edge_ids("targets", case, draw, vocab)
    if ignored is None or not case["ignored"]:
        return targets
    drawn = draw.integers("ignored", 0, 3, *targets.shape) == 0
    drawn.view(-1)[0] = False  # a mean over no token is none
    return targets.masked_fill(drawn, ignored)


def _ends(vocab: int, tp: int, rank: int) -> tuple[int, ...]:
    held = Shard(0).indices(vocab, tp, rank)
    return (held[0], held[-1]) if held else ()
