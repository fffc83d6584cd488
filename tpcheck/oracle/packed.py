"""Noisy runs as one process hands them to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tpcheck.bounds.scales import flat
from tpcheck.oracle.walked import Walked


@dataclass(frozen=True)
class Packed:
    """What is handed over of a walk: its deviations one after the other, its gradients that are
    None, and the steps that may overflow."""

    values: Any  # numpy's, which is handed over at once
    unused: frozenset[tuple[str, str]]
    overflowed: frozenset[int]

    def unpacked(self, right: Walked) -> Walked:
        """The walk, whose values are those of this one."""
        sizes = [value.numel() for value in right.values.values()]
        parts = torch.from_numpy(self.values).split(sizes)
        each = zip(right.values.items(), parts, strict=True)
        values = {key: part.view(value.shape) for (key, value), part in each}
        return replace(right, values=values, unused=self.unused, overflowed=self.overflowed)


def packed(runs: Sequence[Sequence[Walked]]) -> list[list[Packed]]:
    def of(one: Walked) -> Packed:
        return Packed(flat(one.values.values()).numpy(), one.unused, one.overflowed)

    return [[of(one) for one in run] for run in runs]
