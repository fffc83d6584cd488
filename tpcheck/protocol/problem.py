"""What the ranks of a case are given: tensors, and what to compare theirs with.

The bundle is how it reaches them: tensors as safetensors, the rest as JSON in its header.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tpcheck.bounds.spread import Spread
from tpcheck.placement import Entry
from tpcheck.protocol.scaling import Overflow
from tpcheck.tensors.masks import Mask
from tpcheck.vocabulary import Kind

Values = dict[tuple[str, str], Tensor]  # (kind, name) → tensor
Masks = dict[str, list[Mask]]  # a pass's suffix → those of its forward, in their order


@dataclass(frozen=True)
class Target:
    """One tensor to compare: the full expected value and its σ, float64, of one shape.

    Args:
        entry: how it is placed.
        dtype: the reference's own in the case's dtype.
        unused: the reference's gradient is None: the candidate's may be, too.
        own: the reference's own result in the case's dtype: for `rules`.
        exact: of integers and bools the very ones, as int64: float64 has no more than 2**53.
    """

    kind: Kind
    name: str
    entry: Entry
    dtype: torch.dtype
    value: Tensor
    spread: Spread
    unused: bool = False
    own: Tensor | None = None
    exact: Tensor | None = None


@dataclass
class Problem:
    """What the ranks of dp coordinate `d` are given: full tensors in the case's dtype."""

    d: int = 0
    params: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[dict[str, Tensor]] = field(default_factory=list)  # [pass], step after step
    cotangents: list[dict[str, Tensor]] = field(default_factory=list)  # [pass]
    targets: list[Target] = field(default_factory=list)
    borders: list[Target] = field(default_factory=list)  # in the order of computation, full
    most: list[float] = field(default_factory=list)  # [step]: the gradients' norm, clipped
    masks: Masks = field(default_factory=dict)
    overflow: Overflow | None = None  # where the loss is scaled
    tied: frozenset[str] = frozenset()  # parameters that have an earlier name
    terms: frozenset[str] = frozenset()  # parameters of whose gradient ranks keep terms of a sum
    idle: frozenset[str] = frozenset()  # parameters that the spec's optimizer does not have
    ones: bool = False  # cotangents of ones, as a `.sum()` loss has: for `rules`
