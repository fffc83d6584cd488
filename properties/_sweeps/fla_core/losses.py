"""Losses of the installed fla-core."""

from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import ALL_OR_NONE, released
from fixtures.released.fla import PACKAGE, take
from fixtures.released.sequences import strategies
from tpcheck import Argument, Case, KnownFinding
from tpcheck.case import MEMORY_FORMATS

_TOKENS = {"tokens": lambda sizes: strategies().integers(1, 5)}


def _cross_entropy(smoothing: float, square: float) -> Any:
    def reference(logits: Tensor, target: Tensor) -> Tensor:
        losses = F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing)
        return losses + square * logits.logsumexp(-1).square()

    return released(
        PACKAGE,
        lambda logits, target: take("modules.fused_cross_entropy.cross_entropy_loss")(
            logits, target, label_smoothing=smoothing, lse_square_scale=square
        )[0].to(logits.dtype),
        reference=reference,
        arguments={
            "logits": Argument("tokens", "vocab"),
            "target": Argument("tokens", integers=(0, "vocab")),
        },
        sizes=_TOKENS,
    )


cross_entropy = _cross_entropy(0.0, 0.0)
cross_entropy_all = _cross_entropy(0.1, 1e-2)
_PROJECTED = _TOKENS | {
    "hidden": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 17]),
    "vocab": lambda sizes: strategies().sampled_from([2, 5, 16, 17, 33]),
}
_scaled_again = KnownFinding(
    package="fla-core",
    releases="==0.6.0",
    code="second-backward",
    case=Case(dims={"tokens": 1, "vocab": 2, "hidden": 1}),
    when=lambda case: case.gradients == "all",
    page="docs/findings/fla-second-backward.md",
)
fused_linear_cross_entropy = released(
    PACKAGE,
    lambda x, target, weight, bias: take(
        "modules.fused_linear_cross_entropy.fused_linear_cross_entropy_loss"
    )(x, target, weight, bias).to(x.dtype),
    reference=lambda x, target, weight, bias: F.cross_entropy(F.linear(x, weight, bias), target),
    arguments={
        "x": Argument("tokens", "hidden"),
        "target": Argument("tokens", integers=(0, "vocab")),
        "weight": Argument("vocab", "hidden"),
        "bias": Argument("vocab"),
    },
    sizes=_PROJECTED,
    known=[_scaled_again],
    gradients=ALL_OR_NONE,
    dtypes=("float32", "bfloat16"),  # in float16 gradients may be zero
    large=False,
)
#: Formats in which teacher and student differ, so that there are gradients.
_APART = tuple(one for one in MEMORY_FORMATS if one not in ("expanded", "mixed", "aliased"))
fused_kl_div = released(
    PACKAGE,
    lambda x, teacher, weight, fixed: take("modules.fused_kl_div.fused_kl_div_loss")(
        x, teacher.detach(), weight, fixed.detach()
    ).to(x.dtype),
    reference=lambda x, teacher, weight, fixed: F.kl_div(
        F.linear(x, weight).log_softmax(-1),
        F.linear(teacher.detach(), fixed.detach()).log_softmax(-1),
        reduction="batchmean",
        log_target=True,
    ),
    arguments={
        "x": Argument("tokens", "hidden"),
        "teacher": Argument("tokens", "hidden", gradient=False),
        "weight": Argument("vocab", "hidden"),
        "fixed": Argument("vocab", "hidden", gradient=False),
    },
    sizes=_PROJECTED,
    known=[
        replace(_scaled_again, when=lambda case: case.gradients == "all" and case.memory in _APART)
    ],
    memory=_APART,
    families=("normal",),  # in others gradients may be zero
    gradients=ALL_OR_NONE,
    dtypes=("float32", "bfloat16"),
    large=False,
)


def _grpo(logits: Tensor, before: Tensor, ids: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Shao et al., "DeepSeekMath", 2024: the policy's gradient, and a penalty on its divergence."""
    logs = logits[:, :-1].log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    apart = before - logs
    ratio = (logs - logs.detach()).exp()
    return -(ratio * advantages[:, None] - 0.1 * (apart.exp() - apart - 1)) * mask


fused_grpo_loss = released(
    PACKAGE,
    lambda logits, before, ids, advantages, mask: take("modules.grpo.fused_grpo_loss")(
        logits, before, ids, advantages, completion_mask=mask
    ).to(logits.dtype),
    reference=_grpo,
    arguments={
        "logits": Argument("batch", "longer", "vocab"),
        "before": Argument("batch", "length", gradient=False),
        "ids": Argument("batch", "length", integers=(0, "vocab")),
        "advantages": Argument("batch", gradient=False),
        "mask": Argument("batch", "length", integers=(0, 2), dtype="int32"),
    },
    sizes={
        "batch": lambda sizes: strategies().integers(1, 2),
        "length": lambda sizes: strategies().integers(1, 4),
        "longer": lambda sizes: sizes["length"] + 1,
    },
    large=False,
)
