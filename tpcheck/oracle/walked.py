"""What a walk through a module gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from tpcheck.protocol.problem import Masks, Values

Cotangents = dict[str, Tensor]  # output → cotangent


@dataclass(frozen=True)
class Walked:
    """What a module gave on the data of one dp coordinate.

    Args:
        values: every output, gradient, parameter after the step; boundaries of the watched pass.
        cotangents: those that its backwards started from, by microbatch.
        unused: gradients that are None, since nothing depends on the tensor.
        most: what the gradients' norm was clipped to, by step.
        masks: those that its forwards drew.
        unread: the operators that drew what is not a mask.
        overflowed: the steps in which a gradient of a loss that is scaled comes near the largest
            number of the dtype, where none was made infinite, or the norm is not finite.
        idle: parameters that the optimizer does not have.
    """

    values: Values
    cotangents: list[Cotangents]
    unused: frozenset[tuple[str, str]]
    most: Sequence[float] = ()
    masks: Masks = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    overflowed: frozenset[int] = frozenset()
    idle: frozenset[str] = frozenset()

    def then(self, other: Walked) -> Walked:
        """With what came after it."""
        return Walked(
            self.values | other.values,
            self.cotangents + other.cotangents,
            self.unused | other.unused,
            [*self.most, *other.most],
            self.masks | other.masks,
            self.unread | other.unread,
            self.overflowed | other.overflowed,
            self.idle | other.idle,
        )
