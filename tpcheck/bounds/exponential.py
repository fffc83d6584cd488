"""What a function of one number loses to the exponential inside it: `of_exponent`.

A kernel may compute eˣ as 2^(x·log₂ e), as GPUs do: the exponent rounds by v|x|, and so eˣ by as
much relative to itself (CUDA C++ Programming Guide, "Intrinsic Functions": `__expf(x)` errs by
2 + ⌊|1.173 x|⌋ units in the last place). For x near zero that is nothing; e⁻⁶⁰ is off by 60 v.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from torch import Tensor

from tpcheck.bounds.arithmetic import Operation


def of_exponent(op: Operation, out: Tensor) -> Tensor | None:
    """By how many v a result may be off by its exponent; None where there is no exponential."""
    exponent = _EXPONENTS.get(op.name)
    if exponent is None:
        return None
    at = 1 if op.name.endswith("_backward") else 0
    x = op.args[at].double()
    if op.name in _SHARPENED:
        x = x * (op.args[at + 1] if len(op.args) > at + 1 else op.kwargs.get("beta", 1.0))
    lost = out.double().abs() * exponent(x)
    return lost.nan_to_num(nan=0.0, posinf=math.inf)  # e to the power of minus infinity


def _below(x: Tensor) -> Tensor:
    """Of a function that is as eˣ where x is far below zero, and flat or straight above it."""
    return x.clamp(max=0.0).abs()


def _above(x: Tensor) -> Tensor:
    """The same of e⁻ˣ, where x is far above zero."""
    return x.clamp(min=0.0)


#: Of x times a number that is given, β.
_SHARPENED = ("softplus", "softplus_backward")

#: Operation → from its input: the exponent of what its result is proportional to.
_EXPONENTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "exp": Tensor.abs,
    "expm1": _above,
    "sigmoid": _below,
    "silu": _below,
    "silu_backward": _below,
    "softplus": _below,
    "softplus_backward": _below,
    "mish": _below,
    "mish_backward": _below,
    "log_sigmoid_forward": _above,
    "log_sigmoid_backward": _above,
}
