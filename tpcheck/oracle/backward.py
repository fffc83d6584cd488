"""The backward of one pass of the reference, and the gradients that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tpcheck.oracle.walked import Cotangents
from tpcheck.protocol import scaling
from tpcheck.protocol.conventions import differentiable
from tpcheck.tensors.forms import dense

#: What a tensor of floating point becomes that a module is given.
Lift = Callable[[Tensor], Tensor]


def backward(
    outputs: Mapping[str, Tensor], cotangents: Cotangents, scale: float, lift: Lift
) -> None:
    """From all outputs together that depend on something that takes a gradient."""
    names = [n for n in differentiable(outputs) if n in cotangents and outputs[n].requires_grad]
    # copies: a backward may write into what it is given, and the ranks are given the same
    seeds = [lift(cotangents[n].to(outputs[n].dtype, copy=True)) for n in names]
    scaling.scale(seeds, scale)
    if names:
        torch.autograd.backward([outputs[n] for n in names], seeds)


def gradient(tensor: Tensor, scale: float) -> Tensor:
    """The gradient of a loss that was scaled; zero where the reference does not depend on the
    tensor at all. A copy: the reference may keep its own, and write into it later."""
    if tensor.grad is None:
        return torch.zeros_like(tensor)
    gradient = dense(tensor.grad).detach().clone()
    scaling.scale([gradient], 1.0 / scale)
    return gradient
