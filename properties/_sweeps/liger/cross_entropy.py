"""Cross entropy of liger-kernel."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import DTYPES, released
from fixtures.released.liger import PACKAGE, op
from fixtures.released.liger_references import (
    IGNORED,
    PROJECTED,
    SCALED_AGAIN,
    TOKENS,
    every_other,
    per_token,
    reduced,
)
from tpcheck import Argument, Case, KnownFinding
from tpcheck.tensors.strides import format_of

_LOGITS = {
    "logits": Argument("tokens", "vocab"),
    "target": Argument("tokens", integers=(0, "vocab")),
}


def _strided(case: Case) -> bool:
    memory = format_of(case, "logits")
    return memory == "sliced" or (memory == "transposed" and case["tokens"] > 1)


_not_stored = KnownFinding(
    package="liger-kernel",
    releases="==0.8.5",
    code="stride-ignored",
    case=Case(dims={"tokens": 1, "vocab": 1}, memory="sliced"),
    when=_strided,
    page="docs/findings/liger-cross-entropy-strided-logits.md",
)


def _cross_entropy(
    reduction: str,
    *,
    smoothing: float = 0.0,
    square: float = 0.0,
    softcap: float | None = None,
    told: Any = torch.clone,
) -> Any:
    """told: what becomes of the drawn targets."""
    options = (None, IGNORED, square, smoothing, reduction, softcap)

    def reference(logits: Tensor, target: Tensor) -> Tensor:
        target = told(target)
        losses = per_token(logits, target, smoothing=smoothing, square=square, softcap=softcap)
        return reduced(losses, target, reduction)

    return released(
        PACKAGE,
        lambda logits, target: op("CrossEntropy")(logits, told(target), *options)[0],
        reference=reference,
        arguments=_LOGITS,
        sizes=TOKENS,
        overwrites=("logits",),
        known=[_not_stored],
    )


cross_entropy = _cross_entropy("mean")
cross_entropy_sum = _cross_entropy("sum")
cross_entropy_none = _cross_entropy("none")
cross_entropy_ignored = _cross_entropy("mean", told=every_other)
cross_entropy_smoothing = _cross_entropy("mean", smoothing=0.1)
cross_entropy_z_loss = _cross_entropy("mean", square=1e-2)
cross_entropy_softcap = _cross_entropy("mean", softcap=30.0)
cross_entropy_all = _cross_entropy(
    "mean", smoothing=0.1, square=1e-2, softcap=30.0, told=every_other
)


def _fused_linear_cross_entropy(
    reduction: str,
    *,
    smoothing: float = 0.0,
    square: float = 0.0,
    softcap: float | None = None,
    told: Any = torch.clone,
    known: Any = (SCALED_AGAIN,),
) -> Any:
    options = (None, IGNORED, square, smoothing, reduction, softcap)

    def fn(x: Tensor, weight: Tensor, target: Tensor, bias: Tensor) -> Tensor:
        losses = op("FusedLinearCrossEntropy")(x, weight, told(target), bias, *options)[0]
        return losses.to(x.dtype)  # float32 for "none"

    def reference(x: Tensor, weight: Tensor, target: Tensor, bias: Tensor) -> Tensor:
        logits, target = F.linear(x, weight, bias), told(target)
        losses = per_token(logits, target, smoothing=smoothing, square=square, softcap=softcap)
        return reduced(losses, target, reduction)

    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments={
            "x": Argument("tokens", "hidden"),
            "weight": Argument("vocab", "hidden"),
            "target": Argument("tokens", integers=(0, "vocab")),
            "bias": Argument("vocab"),
        },
        sizes=PROJECTED,
        known=known,
        dtypes=("float32", "bfloat16") if known else DTYPES,  # in float16 gradients may be zero
        large=False,
    )


fused_linear_cross_entropy = _fused_linear_cross_entropy("mean")
fused_linear_cross_entropy_sum = _fused_linear_cross_entropy("sum")
fused_linear_cross_entropy_none = _fused_linear_cross_entropy("none", known=())
fused_linear_cross_entropy_all = _fused_linear_cross_entropy(
    "mean", smoothing=0.1, square=1e-2, softcap=30.0, told=every_other
)
