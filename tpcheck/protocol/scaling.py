"""Loss scaling as the reference's walk and a rank's both do it, where the candidate does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tpcheck.tensors.lanes import Lanes
from tpcheck.tensors.live import local
from tpcheck.training import Scaling

#: The name of the scale, beside those of an optimizer's state.
SCALE = "loss_scale"


def scale(tensors: Iterable[Tensor], by: float) -> None:
    """In place, by a power of two. That rounds nothing, so that it is none of the operations whose
    roundings are studied."""
    if by == 1.0:
        return
    with torch.no_grad():
        for tensor in tensors:
            own = tensor.each if isinstance(tensor, Lanes) else local(tensor)
            if is_traceable_wrapper_subclass(own):  # nothing but a size without dispatch
                own.mul_(by)
                continue
            with torch._C._DisableTorchDispatch():
                own.mul_(by)


def unscaled(gradient: Tensor | None, by: float) -> Tensor | None:
    """A gradient without the scale of the loss: where there was one, a tensor of its own."""
    if gradient is None or by == 1.0:
        return gradient
    return gradient.detach().double() / by


@dataclass(frozen=True)
class Overflow:
    """An element of a gradient that is made infinite, once the backwards of a step are over.

    Args:
        step: from 0.
        name: of the parameter.
        element: its number in the full gradient.
    """

    step: int
    name: str
    element: int


class Scaler:
    """The scale of a loss from step to step.

    Args:
        parameters: whose gradients, tied ones once.
        everywhere: whether all gradients of this rank are finite → whether those of all ranks are.
    """

    def __init__(
        self,
        asked: Scaling,
        parameters: Mapping[str, nn.Parameter],
        everywhere: Callable[[bool], bool] = bool,
    ) -> None:
        self.asked, self.parameters, self._everywhere = asked, parameters, everywhere
        self.scale = asked.initial
        self.finite = True  # all gradients of this step
        self._in_a_row = 0  # steps that were taken

    def unscale(self) -> None:
        """Gradients are divided by the scale, in place."""
        grads = [p.grad for p in self.parameters.values() if p.grad is not None]
        self.finite = self._everywhere(all(bool(local(g).isfinite().all()) for g in grads))
        scale(grads, 1.0 / self.scale)

    def update(self) -> None:
        """After a step, taken or left out."""
        self._in_a_row = self._in_a_row + 1 if self.finite else 0
        if not self.finite:
            self.scale *= self.asked.backoff
        elif self._in_a_row == self.asked.interval:
            self.scale *= self.asked.growth
            self._in_a_row = 0
