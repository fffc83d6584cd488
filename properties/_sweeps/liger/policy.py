"""Losses of liger-kernel for reinforcement learning: GRPO and its relatives, of logits and of a
projection.

Numbers are normal ones: ratios of probabilities are exponentials, clipped, and one that lies on a
bound of the clipping has no gradient.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import ALL_OR_NONE, released
from fixtures.released.liger import PACKAGE, op, take
from fixtures.released.liger_references import IGNORED, PROJECTED, every_other, strategies
from tpcheck import Argument, Case, KnownFinding
from tpcheck.case import GRADIENTS

LOW, HIGH = 0.2, 0.3


def _chosen(logits: Tensor, index: Tensor, temperature: float) -> Tensor:
    """The logarithms of the chosen tokens' probabilities."""
    return (logits / temperature).log_softmax(-1).gather(-1, index[..., None])[..., 0]


def _policy_loss(
    logp: Tensor,
    old: Tensor,
    ref: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    loss_type: str = "grpo",
    beta: float = 0.04,
    level: str = "token",
    delta: float | None = None,
    corrected: bool = False,
    behind: Tensor | None = None,
) -> Tensor:
    """Of [B, L]: Shao et al., "DeepSeekMath", 2024, and what loss_type names. level: GSPO (Zheng et
    al., 2025), of one ratio per sequence. delta: an upper bound of the ratio. corrected: the
    divergence times the ratio (DeepSeek-V3.2). behind: the policy's ratio to the one that wrote the
    tokens."""
    gain, mask = advantages[:, None], mask.to(logp.dtype)
    lengths = mask.sum(-1, keepdim=True).clamp_min(1)
    apart = logp - old
    if level == "sequence":
        apart = (apart * mask).sum(-1, keepdim=True) / lengths
    ratio = apart.exp()
    if loss_type == "cispo":
        each = -ratio.clamp(max=HIGH).detach() * gain * logp
    elif loss_type == "vespo":
        each = -_vespo(apart * mask, gain, behind).detach() * gain * logp
    elif loss_type == "sapo":
        steep = torch.where(gain > 0, 1.0, 1.05).to(gain.dtype)
        each = -torch.sigmoid(steep * (ratio - 1)) * 4 / steep * gain
    else:
        bounded = ratio if delta is None else ratio.clamp(max=delta)
        each = -torch.minimum(bounded * gain, ratio.clamp(1 - LOW, 1 + HIGH) * gain)
    if behind is not None and loss_type != "vespo":
        each = each * behind
    divergence = (ref - logp).exp() - (ref - logp) - 1
    each = (each + beta * divergence * (ratio if corrected else 1)) * mask
    if loss_type in ("grpo", "sapo"):
        return (each.sum(-1) / lengths[:, 0]).mean()
    if loss_type == "dr_grpo":
        return each.sum() / each.numel()
    if loss_type == "luspo":
        return (each * mask.sum(-1, keepdim=True)).mean()
    return each.sum() / mask.sum().clamp_min(1)


def _vespo(apart: Tensor, gain: Tensor, behind: Tensor | None) -> Tensor:
    """φ(w) = e^(λ (1 - w)) · w^k of a sequence's ratio w, with TRL's λ and k."""
    low = math.log(1e-8)
    log = apart.clamp(-20, 20).sum(-1, keepdim=True)
    if behind is not None:
        log = log + behind.log().clamp(low, 20).sum(-1, keepdim=True)
    log = log.clamp(low, 20)
    steep = torch.where(gain >= 0, 3.0, 2.0).to(gain.dtype)
    power = 5 - steep
    return (steep * (1 - log.exp()) + power * log).exp()


def _behind(drawn: Tensor, mask: Tensor) -> Tensor:
    """A ratio of the drawn numbers, 1 for padding."""
    return (drawn.abs() / 4 + 0.5).where(mask > 0, 1.0)


def _whole(mask: Tensor) -> Tensor:
    """Of no padding."""
    return torch.ones_like(mask)


def _padded(mask: Tensor) -> Tensor:
    """Of sequences whose last token is padding."""
    return (torch.arange(mask.shape[1]) < mask.shape[1] - 1).to(mask.dtype).expand_as(mask)


_COMPLETION = Argument("batch", "length", gradient=False)
_CHOSEN = {
    "index": Argument("batch", "length", integers=(0, "vocab")),
    "old": _COMPLETION,
    "ref": _COMPLETION,
    "advantages": Argument("batch", gradient=False),
    "mask": Argument("batch", "length", integers=(0, 2)),
}
_SIZES = {
    "batch": lambda sizes: strategies().integers(1, 3),
    "length": lambda sizes: strategies().integers(1, 5),
    "vocab": PROJECTED["vocab"],
}


def _grpo(
    known: Any = (), masked: Any = torch.clone, *, ratio: bool = False, **options: Any
) -> Any:
    """Of logits [B, L + 1, V], whose last position has no token. masked: what becomes of the drawn
    mask."""
    more = {"drawn": _COMPLETION} if ratio else {}
    named = {"loss_type": "grpo", "beta": 0.04, "level": "token", "delta": None, "corrected": False}
    named |= options

    def fn(
        logits: Tensor, index: Tensor, old: Tensor, ref: Tensor, advantages: Tensor, mask: Tensor,
        *drawn: Tensor,
    ) -> Tensor:  # fmt: skip
        behind = _behind(*drawn, mask) if drawn else None
        loss = take("transformers.grpo_loss.triton_grpo_loss")(
            logits.contiguous(), old.contiguous(), ref.contiguous(), index,
            advantages.contiguous(), masked(mask), 0.9, named["beta"], LOW, HIGH, False,
            named["loss_type"], None, named["level"], True, 1.0, 1.05, behind, named["delta"],
            named["corrected"],
        )  # fmt: skip
        return loss[0].to(logits.dtype)  # float32

    def reference(
        logits: Tensor, index: Tensor, old: Tensor, ref: Tensor, advantages: Tensor, mask: Tensor,
        *drawn: Tensor,
    ) -> Tensor:  # fmt: skip
        logp = _chosen(logits[:, :-1], index, 0.9)
        behind = _behind(*drawn, mask) if drawn else None
        return _policy_loss(logp, old, ref, advantages, masked(mask), behind=behind, **named)

    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments={"logits": Argument("batch", "longer", "vocab"), **_CHOSEN, **more},
        sizes=_SIZES | {"longer": lambda sizes: strategies().just(sizes["length"] + 1)},
        families=("normal",),
        large=False,
        known=known,
        gradients=ALL_OR_NONE if known else GRADIENTS,
    )


grpo_loss = _grpo()
grpo_loss_dapo = _grpo(loss_type="dapo")
grpo_loss_bnpo = _grpo(loss_type="bnpo")
grpo_loss_dr = _grpo(loss_type="dr_grpo")
grpo_loss_luspo = _grpo(
    [
        KnownFinding(
            package="liger-kernel",
            releases="==0.8.5",
            code="out-of-bounds",
            case=Case(dims={"batch": 1, "length": 2, "longer": 3, "vocab": 2}),
            when=lambda case: case["length"] > 1 and case.gradients == "all",
            page="docs/findings/liger-luspo-strides.md",
        )
    ],
    _whole,
    loss_type="luspo",
)
grpo_loss_cispo = _grpo(loss_type="cispo")
grpo_loss_sapo = _grpo(loss_type="sapo")
grpo_loss_vespo = _grpo(loss_type="vespo", ratio=True)
grpo_loss_ratio = _grpo(ratio=True)
grpo_loss_sequence_ratio = _grpo(level="sequence", ratio=True)
grpo_loss_sequence = _grpo(level="sequence")
grpo_loss_all = _grpo(delta=1.5, corrected=True)
grpo_loss_sequence_all = _grpo(level="sequence", delta=1.5, corrected=True)
selective_log_softmax = released(
    PACKAGE,
    lambda logits, index: take("ops.grpo_loss.fused_selective_log_softmax")(
        logits.contiguous(), index, 0.9
    ),
    reference=lambda logits, index: _chosen(logits[:, :-1], index, 0.9),
    arguments={
        "logits": Argument("batch", "longer", "vocab", gradient=False),
        "index": _CHOSEN["index"],
    },
    sizes=_SIZES | {"longer": lambda sizes: strategies().just(sizes["length"] + 1)},
)


def _fused_linear_grpo(
    known: Any = (), masked: Any = torch.clone, *, ratio: bool = False, **options: Any
) -> Any:
    named = {"loss_type": "dapo", "beta": 0.04, "level": "token", "delta": None, "corrected": False}
    named |= options

    def fn(
        x: Tensor, weight: Tensor, bias: Tensor, index: Tensor, old: Tensor, ref: Tensor,
        advantages: Tensor, mask: Tensor, *drawn: Tensor,
    ) -> Tensor:  # fmt: skip
        behind = _behind(*drawn, mask) if drawn else None
        loss = take("chunked_loss.functional.liger_fused_linear_grpo")(
            x, weight, index, masked(mask), advantages, bias, ref, old, None, None, None,
            named["beta"], LOW, HIGH, named["loss_type"], x.shape[1], named["level"], 1.0, 1.05,
            0.9, False, True, 1, behind, named["delta"], named["corrected"],
        )  # fmt: skip
        return loss[0].to(x.dtype)  # float32

    def reference(
        x: Tensor, weight: Tensor, bias: Tensor, index: Tensor, old: Tensor, ref: Tensor,
        advantages: Tensor, mask: Tensor, *drawn: Tensor,
    ) -> Tensor:  # fmt: skip
        behind = _behind(*drawn, mask) if drawn else None
        logp = _chosen(F.linear(x, weight, bias), index, 0.9)
        return _policy_loss(logp, old, ref, advantages, masked(mask), behind=behind, **named)

    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments={
            "x": Argument("batch", "length", "hidden"),
            "weight": Argument("vocab", "hidden"),
            "bias": Argument("vocab"),
            **_CHOSEN,
            **({"drawn": _COMPLETION} if ratio else {}),
        },
        sizes=_SIZES | {"hidden": PROJECTED["hidden"]},
        families=("normal",),
        large=False,
        known=known,
    )


fused_linear_grpo = _fused_linear_grpo()
fused_linear_grpo_per_sequence = _fused_linear_grpo(loss_type="grpo")
fused_linear_grpo_dr = _fused_linear_grpo(loss_type="dr_grpo")
fused_linear_grpo_luspo = _fused_linear_grpo(
    [
        KnownFinding(
            package="liger-kernel",
            releases="==0.8.5",
            code=("unclassified", "shard-order"),  # rows may be another's by chance
            case=Case(dims={"batch": 1, "hidden": 1, "length": 2, "vocab": 2}, seed=1),
            when=lambda case: case["length"] > 1,
            page="docs/findings/liger-luspo-padding.md",
        )
    ],
    _padded,
    loss_type="luspo",
)
fused_linear_grpo_cispo = _fused_linear_grpo(loss_type="cispo")
fused_linear_grpo_sapo = _fused_linear_grpo(loss_type="sapo")
fused_linear_grpo_vespo = _fused_linear_grpo(loss_type="vespo", ratio=True)
fused_linear_grpo_ratio = _fused_linear_grpo(ratio=True)
fused_linear_grpo_sequence = _fused_linear_grpo(loss_type="bnpo", level="sequence")
fused_linear_grpo_all = _fused_linear_grpo(delta=1.5, corrected=True)


def _scaled(
    x: Tensor, weight: Tensor, target: Tensor, picked: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Negative log-likelihood, entropy, and the logarithms of the picked tokens' probabilities: 0
    for tokens that are ignored."""
    told = every_other(target)
    logs = (F.linear(x, weight) / 0.7).log_softmax(-1)
    there = told != IGNORED
    nll = F.nll_loss(logs, told, reduction="none")
    return nll, -(logs.exp() * logs).sum(-1) * there, logs[:, picked] * there[:, None]


fused_linear_scaled_cross_entropy = released(
    PACKAGE,
    lambda x, weight, target, picked: op("FusedLinearScaledCrossEntropy")(
        x, weight, every_other(target), 0.7, IGNORED, 1, True, picked
    ),
    reference=_scaled,
    arguments={
        "x": Argument("tokens", "hidden"),
        "weight": Argument("vocab", "hidden"),
        "target": Argument("tokens", integers=(0, "vocab")),
        "picked": Argument("picks", integers=(0, "vocab")),
    },
    sizes=PROJECTED | {"picks": lambda sizes: strategies().integers(1, 3)},
)
