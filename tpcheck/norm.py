"""The norm of all gradients together, by which they are clipped before a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tpcheck.errors import InvalidArgument, shown


@dataclass(frozen=True)
class Norm:
    """What a spec asks of the gradients' norm: `Spec(norm=Norm())`.

    The norm is that of all parameters' gradients as one vector, each tied parameter once
    (Pascanu et al., "On the difficulty of training recurrent neural networks", 2013). Gradients g
    become g · min(1, most / (norm + 1e-6)), as `torch.nn.utils.clip_grad_norm_` has it.

    Args:
        order: p of the p-norm: a positive number, or infinity.
        most: what the norm may be at most, as multiples of what it is. Which of them a case has
            follows from its seed: below 1 its gradients are clipped, from 1 on they are not.

    Raises:
        InvalidArgument: a member can't be.
    """

    order: float = 2.0
    most: tuple[float, ...] = (0.5, 2.0)

    def __post_init__(self) -> None:
        if not _is_positive(self.order):
            raise InvalidArgument(
                f"Norm(order={shown(self.order)}): give a positive number, or math.inf"
            )
        if not (isinstance(self.most, tuple) and self.most and all(map(_is_finite, self.most))):
            raise InvalidArgument(
                f"Norm(most={shown(self.most)}): give a tuple of positive numbers, as in (0.5, 2.0)"
            )

    def most_of(self, seed: int) -> float:
        """The multiple that a case with this seed has."""
        return self.most[seed % len(self.most)]


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _is_finite(value: object) -> bool:
    return _is_positive(value) and math.isfinite(value)  # type: ignore[arg-type]
