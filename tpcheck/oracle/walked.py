"""What a walk through a module gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from tpcheck.protocol.problem import Values

Cotangents = dict[str, Tensor]  # output → cotangent


@dataclass(frozen=True)
class Walked:
    """What a module gave on the data of one dp coordinate.

    Args:
        values: every output, gradient, parameter after the step; boundaries of the watched pass.
        cotangents: those that its backwards started from, by microbatch.
        unused: gradients that are None, since nothing depends on the tensor.
        most: what the gradients' norm was clipped to, by step.
    """

    values: Values
    cotangents: list[Cotangents]
    unused: frozenset[tuple[str, str]]
    most: Sequence[float] = ()

    def then(self, other: Walked) -> Walked:
        """With what came after it."""
        return Walked(
            self.values | other.values,
            self.cotangents + other.cotangents,
            self.unused | other.unused,
            [*self.most, *other.most],
        )
