"""Cross entropy of liger-kernel."""

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import ALL_OR_NONE, DTYPES, released
from fixtures.released.liger import PACKAGE, op
from fixtures.released.liger_references import (
    IGNORED,
    PROJECTED,
    SCALED_AGAIN,
    TOKENS,
    every_other,
    per_token,
    reduced,
    strategies,
)
from tpcheck import Argument, Case, KnownFinding, Layout, Shard
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
    frozen: bool = False,
) -> Any:
    """frozen: whether the hidden states take no gradient."""
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
            "x": Argument("tokens", "hidden", gradient=not frozen),
            "weight": Argument("vocab", "hidden"),
            "target": Argument("tokens", integers=(0, "vocab")),
            "bias": Argument("vocab"),
        },
        sizes=PROJECTED,
        known=known,
        dtypes=("float32", "bfloat16") if known else DTYPES,  # in float16 gradients may be zero
        gradients=ALL_OR_NONE,
        large=False,
    )


fused_linear_cross_entropy = _fused_linear_cross_entropy("mean")
fused_linear_cross_entropy_sum = _fused_linear_cross_entropy("sum")
fused_linear_cross_entropy_none = _fused_linear_cross_entropy("none", known=())
fused_linear_cross_entropy_frozen = _fused_linear_cross_entropy(
    "mean",
    frozen=True,
    known=[
        replace(
            SCALED_AGAIN,
            code="gradient-dropped",
            page="docs/findings/liger-fused-linear-frozen-input.md",
        )
    ],
)
fused_linear_cross_entropy_all = _fused_linear_cross_entropy(
    "mean", smoothing=0.1, square=1e-2, softcap=30.0, told=every_other
)


def _vocab_parallel(smoothing: float, formula: str = "pytorch") -> Any:
    """Of logits [S, B, V / tp], per token."""

    def share(vocab: int) -> float:
        """Of the loss, what is spread over the vocabulary."""
        return smoothing * vocab / (vocab - 1) if formula == "megatron" else smoothing

    def fn(logits: Tensor, target: Tensor) -> Tensor:
        options = (dist.group.WORLD, IGNORED, smoothing, formula, "global")
        return op("VocabParallelCE")(logits, _second_ignored(target), *options)

    def reference(logits: Tensor, target: Tensor) -> Tensor:
        logs, told = logits.log_softmax(-1), _second_ignored(target)
        spread = share(logits.shape[-1])
        each = (1 - spread) * logs.gather(-1, target[..., None])[..., 0] + spread * logs.mean(-1)
        return -each * (told != IGNORED)

    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments={
            "logits": Argument("length", "batch", "vocab"),
            "target": Argument("length", "batch", integers=(0, "vocab")),
        },
        sizes={
            "batch": lambda sizes: strategies().integers(1, 3),
            "length": lambda sizes: strategies().integers(1, 3),
            "vocab": lambda sizes: (
                strategies().sampled_from([1, 2, 5, 16, 17]).map(lambda n: max(2, n * sizes["tp"]))
            ),
        },
        known=[
            replace(
                SCALED_AGAIN,
                case=Case(dims={"batch": 1, "length": 1, "vocab": 2}),
                page="docs/findings/liger-vocab-parallel-second-backward.md",
            )
        ],
        gradients=ALL_OR_NONE,
        families=("normal", "shifted", "equal", "zeros", "one-hot", "subnormal", "infinite"),
        large=False,
        degrees=(1, 2),
        layout=Layout({}, {"logits": Shard(2)}),
    )


def _second_ignored(target: Tensor) -> Tensor:
    return target.where(torch.arange(target.shape[1]) != 1, IGNORED)


vocab_parallel_cross_entropy = _vocab_parallel(0.0)
vocab_parallel_cross_entropy_smoothing = _vocab_parallel(0.1)
vocab_parallel_cross_entropy_megatron = _vocab_parallel(0.1, "megatron")


def _far(logits: Tensor) -> Tensor:
    """The first element far above all others."""
    return logits + 200 * (torch.arange(logits.shape[-1]) == 0)


vocab_parallel_cross_entropy_far = released(
    PACKAGE,
    lambda logits, target: op("VocabParallelCE")(
        _far(logits), target, None, IGNORED, 0.1, "pytorch", "global"
    ).to(logits.dtype),
    reference=lambda logits, target: F.cross_entropy(
        _far(logits).flatten(0, 1), target.flatten(), reduction="none", label_smoothing=0.1
    ).view_as(target),
    arguments={
        "logits": Argument("length", "batch", "vocab", gradient=False),
        "target": Argument("length", "batch", integers=(0, "vocab")),
    },
    sizes={
        "batch": lambda sizes: strategies().integers(1, 3),
        "length": lambda sizes: strategies().integers(1, 3),
        "vocab": lambda sizes: strategies().sampled_from([2, 5, 16, 17]),
    },
    families=("normal",),
    large=False,
    known=[
        KnownFinding(
            package="liger-kernel",
            releases="==0.8.5",
            code="unclassified",
            case=Case(dims={"batch": 1, "length": 1, "vocab": 2}),
            when=lambda case: True,
            page="docs/findings/liger-vocab-parallel-smoothing.md",
        )
    ],
)
