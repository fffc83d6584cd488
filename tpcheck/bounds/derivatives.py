"""The variance of what the terms of a derivative lose, where they may cancel: `lost`.

The derivative of an elementwise function is a sum of terms of the gradient's size. In some of them
1 − s, the distance of a saturated function from 1, is times a number that is not small: s has
rounded by v by then, so the term is off by as many v as that number, or by all of 1 − s where s has
become 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import Arithmetic, Operation


def derives(op: Operation) -> bool:
    """Whether an operation is the derivative of one that is elementwise: of a gradient, of the
    result's shape."""
    if not (op.name.endswith("_backward") and op.args and isinstance(op.args[0], Tensor)):
        return False
    return isinstance(op.out, Tensor) and op.out.shape == op.args[0].shape


def lost(how: Arithmetic, op: Operation, out: Tensor) -> Tensor:
    """Of a derivative, beside the rounding of its result.

    Args:
        out: the result.
    """
    gradient, v = op.args[0].double(), how.v(out)
    of_terms = (2 * v * gradient) ** 2
    saturates = _SATURATES.get(op.name)
    if saturates is None or not isinstance(op.args[1], Tensor):
        return of_terms
    times, distance = saturates(op, op.args[1].double())
    return of_terms + (gradient * times * distance.clamp(max=v)) ** 2 / 3


def _silu(op: Operation, x: Tensor) -> tuple[Tensor, Tensor]:
    """s + x·s·(1 − s), s the sigmoid."""
    return x * x.sigmoid(), (-x).sigmoid()


def _mish(op: Operation, x: Tensor) -> tuple[Tensor, Tensor]:
    """t + x·s·(1 − t²), t the tanh of softplus: 1 − t² is nearly twice 1 − t."""
    t = torch.nn.functional.softplus(x).tanh()
    return 2 * x * x.sigmoid(), 1 - t


#: √(2/π), and the cubic term of GELU's approximation by tanh (Hendrycks and Gimpel, "Gaussian error
#: linear units", 2016).
_ROOT, _CUBIC = math.sqrt(2 / math.pi), 0.044715


def _gelu(op: Operation, x: Tensor) -> tuple[Tensor, Tensor]:
    """½(1 + t) + ½x·(1 − t²)·t', t the tanh of a cubic; with erf nothing is near 1 but what ends
    in a density."""
    if op.kwargs.get("approximate", "none") != "tanh":
        return x, torch.zeros_like(x)
    slope = _ROOT * (1 + 3 * _CUBIC * x**2)
    return x * slope, 1 - (_ROOT * (x + _CUBIC * x**3)).tanh().abs()


#: Operation → from its input x: what 1 − s is times, and 1 − s.
_SATURATES: Mapping[str, Callable[[Operation, Tensor], tuple[Tensor, Tensor]]] = {
    "silu_backward": _silu,
    "mish_backward": _mish,
    "gelu_backward": _gelu,
}
