"""Losses of `liger_kernel.chunked_loss`: of preferences, and of a student and its teacher, each
with its projection. They are of plain torch, gradients included; `compiled=False` leaves
torch.compile out but of one.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.liger import PACKAGE, take
from fixtures.released.liger_references import IGNORED, PROJECTED, mixed, strategies
from tpcheck import Argument

BETA = 0.1


def _every_other(target: Tensor) -> Tensor:
    """The targets [B, L], with odd positions ignored."""
    return target.where(torch.arange(target.shape[1]) % 2 == 0, IGNORED)


def _logps(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, average: bool) -> Tensor:
    """Of each sequence: the sum, or mean, of its tokens' log-probabilities."""
    logs = F.linear(x, weight, bias).log_softmax(-1)
    there = target != IGNORED
    each = logs.gather(-1, target.where(there, 0)[..., None])[..., 0] * there
    return each.sum(-1) / (there.sum(-1) if average else 1)


def _nll(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
    """The mean over the chosen sequences' tokens."""
    logits = F.linear(x, weight, bias)[: len(x) // 2]
    return F.cross_entropy(logits.flatten(0, 1), target[: len(x) // 2].flatten())


_SEQUENCES = {
    "x": Argument("batch", "length", "hidden"),
    "weight": Argument("vocab", "hidden"),
    "bias": Argument("vocab"),
    "target": Argument("batch", "length", integers=(0, "vocab")),
}
_FIXED = {
    "ref": Argument("batch", "length", "hidden", gradient=False),
    "fixed": Argument("vocab", "hidden", gradient=False),
}
_SIZES = {
    "batch": lambda sizes: strategies().sampled_from([2, 4, 6]),  # chosen ones, then rejected ones
    "length": lambda sizes: strategies().integers(1, 5),
    "hidden": PROJECTED["hidden"],
    "vocab": PROJECTED["vocab"],
}
Loss = Callable[[Tensor, Tensor], Tensor]  # of a chosen and a rejected sequence's logarithm


def _pairs(name: str, options: tuple[Any, ...], loss: Loss, *, average: bool, nll: bool) -> Any:
    """options: after the bias, as the function takes them."""

    def fn(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        run = take(f"chunked_loss.functional.liger_fused_linear_{name}")
        return run(x, weight, _every_other(target), bias, *options)[0]

    def reference(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        target = _every_other(target)
        chosen, rejected = _logps(x, weight, bias, target, average).chunk(2)
        preferred = loss(chosen, rejected).mean()
        return preferred + _nll(x, weight, bias, target) if nll else preferred

    return released(
        PACKAGE, fn, reference=reference, arguments=_SEQUENCES, sizes=_SIZES, large=False
    )


def _smoothed(logits: Tensor, smoothing: float) -> Tensor:
    return -F.logsigmoid(logits) * (1 - smoothing) - F.logsigmoid(-logits) * smoothing


def _odds(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Hong et al., "ORPO", 2024."""
    odds = chosen - rejected - torch.log1p(-chosen.exp()) + torch.log1p(-rejected.exp())
    return -BETA * F.logsigmoid(odds)


# Xu et al., "Contrastive preference optimization", 2024
fused_linear_cpo = _pairs(
    "cpo",
    (IGNORED, BETA, 1.0, 0.1, True, False, False, 1),
    lambda chosen, rejected: _smoothed(BETA * (chosen - rejected), 0.1),
    average=False,
    nll=True,
)
# Meng et al., "SimPO", 2024
fused_linear_simpo = _pairs(
    "simpo",
    (IGNORED, BETA, 1.0, 0.1, False, False, 0.5, 2),
    lambda chosen, rejected: _smoothed(BETA * (chosen - rejected) - 0.5, 0.1),
    average=True,
    nll=False,
)
fused_linear_orpo = _pairs(
    "orpo", (IGNORED, BETA, True, None, False, 1), _odds, average=True, nll=True
)


def _dpo(kind: str, loss: Loss, *, smoothing: float = 0.0) -> Any:
    """Rafailov et al., "Direct preference optimization", 2023, and its variants.

    loss: of both sequences' ratios to the reference model, times β.
    """

    def fn(
        x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, ref: Tensor, fixed: Tensor
    ) -> Tensor:
        run = take("chunked_loss.functional.liger_fused_linear_dpo")
        told = _every_other(target)
        options = (IGNORED, BETA, True, False, True, False, 1, kind, smoothing, 0.05, 0.5)
        return run(x, weight, told, bias, ref, fixed, bias.detach(), *options)[0]

    def reference(
        x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, ref: Tensor, fixed: Tensor
    ) -> Tensor:
        target = _every_other(target)
        apart = _logps(x, weight, bias, target, False)
        apart = BETA * (apart - _logps(ref, fixed, bias.detach(), target, False))
        return loss(*apart.chunk(2)).mean() + 0.5 * _nll(x, weight, bias, target)

    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments=_SEQUENCES | _FIXED,
        sizes=_SIZES,
        large=False,
    )


def _exo(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Ji et al., "Towards efficient exact optimization", 2024, (16), with ε = 0.1."""
    apart = chosen - rejected
    given = torch.tensor([0.9, 0.1], dtype=apart.dtype).log()
    won = torch.sigmoid(apart) * (F.logsigmoid(apart) - given[0])
    return won + torch.sigmoid(-apart) * (F.logsigmoid(-apart) - given[1])


def _robust(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Chowdhury et al., "Provably robust DPO", 2024: a tenth of the labels are flipped."""
    apart = chosen - rejected
    return (0.1 * F.logsigmoid(-apart) - 0.9 * F.logsigmoid(apart)) / 0.8


def _discopop(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Lu et al., "Discovering preference optimization algorithms", 2024, (5)."""
    apart = chosen - rejected
    mixing = torch.sigmoid(apart / 0.05)
    return -F.logsigmoid(apart) * (1 - mixing) + torch.exp(-apart) * mixing


fused_linear_dpo = _dpo("sigmoid", lambda chosen, rejected: -F.logsigmoid(chosen - rejected))
fused_linear_dpo_hinge = _dpo("hinge", lambda chosen, rejected: (1 - chosen + rejected).relu())
fused_linear_dpo_exo = _dpo("exo_pair", _exo, smoothing=0.1)
fused_linear_dpo_nca = _dpo(
    "nca_pair",
    lambda chosen, rejected: (
        -F.logsigmoid(chosen) - (F.logsigmoid(-chosen) + F.logsigmoid(-rejected)) / 2
    ),
)
fused_linear_dpo_robust = _dpo("robust", _robust, smoothing=0.1)
fused_linear_dpo_bco = _dpo(
    "bco_pair", lambda chosen, rejected: -F.logsigmoid(chosen) - F.logsigmoid(-rejected)
)
fused_linear_dpo_sppo = _dpo(
    "sppo_hard",
    lambda chosen, rejected: ((chosen - 0.5) / BETA).square() + ((rejected + 0.5) / BETA).square(),
)
fused_linear_dpo_apo_zero = _dpo(
    "apo_zero", lambda chosen, rejected: torch.sigmoid(-chosen) + torch.sigmoid(rejected)
)
fused_linear_dpo_apo_down = _dpo(
    "apo_down", lambda chosen, rejected: torch.sigmoid(chosen) + torch.sigmoid(rejected - chosen)
)
fused_linear_dpo_discopop = _dpo("discopop", _discopop)


def _kto(
    x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, ref: Tensor, fixed: Tensor,
    labels: Tensor, kl: Tensor,
) -> Tensor:  # fmt: skip
    """Ethayarajh et al., "KTO", 2024."""
    target = _every_other(target)
    apart = _logps(x, weight, bias, target, False)
    apart = apart - _logps(ref, fixed, bias.detach(), target, False) - kl
    return (1 - torch.sigmoid(BETA * apart * torch.where(labels, 1, -1))).mean()


def _kto_fused(
    x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, ref: Tensor, fixed: Tensor,
    labels: Tensor, kl: Tensor,
) -> Tensor:  # fmt: skip
    run = take("chunked_loss.functional.liger_fused_linear_kto")
    others = (ref, fixed, bias.detach(), kl)
    options = (IGNORED, BETA, False, True, False, 1)
    return run(x, weight, _every_other(target), labels, bias, *others, *options)[0]


fused_linear_kto = released(
    PACKAGE,
    _kto_fused,
    reference=_kto,
    arguments=_SEQUENCES
    | _FIXED
    | {"labels": Argument("batch", dtype="bool"), "kl": Argument(1, gradient=False)},
    sizes=_SIZES | {"batch": lambda sizes: strategies().integers(1, 4)},
    large=False,
)


def _distilled(
    name: str, apart: Loss, *, compiled: bool = False, sizes: Mapping[str, Any] = PROJECTED
) -> Any:
    """Half of the cross-entropy, and half of what the logits are apart: of a student and a teacher
    [T, V], summed over the vocabulary."""

    def fn(
        x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, teacher: Tensor, fixed: Tensor
    ) -> Tensor:
        run = take(f"chunked_loss.functional.liger_fused_linear_{name}")
        told = target.where(torch.arange(len(target)) % 2 == 0, IGNORED)
        options = (0.5, 0.5, 0.3, IGNORED, 2.0, compiled, 2)
        return run(x, weight, teacher, fixed, told, bias, None, *options)

    def reference(
        x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, teacher: Tensor, fixed: Tensor
    ) -> Tensor:
        logits = F.linear(x, weight, bias)
        there = torch.arange(len(target)) % 2 == 0
        soft = apart(logits / 2, F.linear(teacher, fixed) / 2)[there].mean()
        return (F.cross_entropy(logits[there], target[there]) + soft) / 2

    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments={
            "x": Argument("tokens", "hidden"),
            "weight": Argument("vocab", "hidden"),
            "bias": Argument("vocab"),
            "target": Argument("tokens", integers=(0, "vocab")),
            "teacher": Argument("tokens", "wide", gradient=False),
            "fixed": Argument("vocab", "wide", gradient=False),
        },
        sizes={**sizes, "wide": sizes["hidden"]},
        large=False,
    )


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    return mixed(p.log_softmax(-1), q.log_softmax(-1), 0.3)


fused_linear_jsd_chunked = _distilled("jsd", _divergence)
fused_linear_jsd_compiled = _distilled(  # once for each of few sizes: half a minute each
    "jsd", _divergence, compiled=True, sizes={"tokens": [4, 5], "hidden": 8, "vocab": 16}
)
fused_linear_cosine = _distilled(
    "cosine", lambda p, q: 0.3 * (1 - F.cosine_similarity(p, q, dim=-1))
)
