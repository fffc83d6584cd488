"""Spec of the softmax cross-entropy over a vocabulary that is sharded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tpcheck.budget import Budget
from tpcheck.case import Case
from tpcheck.configurations import Models
from tpcheck.given import require_some
from tpcheck.layout import Layout
from tpcheck.placement import Shard
from tpcheck.spec import Spec
from tpcheck.specs import scaled
from tpcheck.specs.edges import edge_targets

#: The target of a token without a loss, unless another is asked for.
IGNORED = -100
#: All-reduces of one number per token: the largest logit, Σ exp, the target's logit; the sum of all
#: logits where labels are smoothed.
REDUCED, SMOOTHED = 3, 1
REDUCTIONS = ("mean", "sum", "none")


class CrossEntropy(nn.Module):
    """logits [B, S, W], targets [B, S] → the loss: one number, or [B, S] with reduction "none".

    Each token's loss is −Σ_v q_v log p_v with p = softmax(logits) over the first V of the W
    columns, q the label of which `label_smoothing` goes to all V alike (Szegedy et al., 2016), plus
    `z_loss` · log²Σ exp(logits) (Chowdhery et al., "PaLM", 2022, section 5). Tokens whose target is
    `ignore_index` have none; "mean" divides by the number of the others.

    Args:
        vocab: V; columns behind it are padding.
        upcast: compute in float32 where logits are of less.
    """

    def __init__(
        self,
        vocab: int,
        *,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        upcast: bool = False,
    ) -> None:
        super().__init__()
        self.vocab, self.reduction, self.ignore_index = vocab, reduction, ignore_index
        self.label_smoothing, self.z_loss, self.upcast = label_smoothing, z_loss, upcast

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        logits, flat = logits[..., : self.vocab].flatten(0, -2), targets.flatten()
        if self.upcast:
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(
            logits,
            flat,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction="none",
        )
        counted = flat != self.ignore_index
        if self.z_loss:
            loss = loss + self.z_loss * logits.logsumexp(-1).square() * counted
        if self.reduction == "none":
            return loss.view(targets.shape)
        return loss.sum() / counted.sum() if self.reduction == "mean" else loss.sum()


def cross_entropy(
    *,
    reductions: Sequence[str] = REDUCTIONS,
    ignore_index: int | None = -100,
    label_smoothing: Sequence[float] = (0.0,),
    z_loss: Sequence[float] = (0.0,),
    upcast: bool = False,
    padded: bool = False,
    even: bool = False,
    models: Models = (),
) -> Spec:
    """Cross-entropy of logits that are sharded along the vocabulary: logits `Shard(2)`, targets
    `Replicate` → loss `Replicate`.

    Dims: `batch`, `seq`, `vocab` (odd ones too, unless `even`), `width` (the columns of the logits,
    more than `vocab` where `padded`), `reduction`, `label_smoothing`, `z_loss`, `ignored`: whether
    some targets are `ignore_index`. Not all are. Every case has the first and the last id of each
    rank's range as targets, and in part of them logits are large, shifted or all equal. Under
    `models`, only their vocabularies (`specs/scaled`).

    Args:
        reductions: those that the candidate has, of "mean", "sum" and "none".
        label_smoothing: the amounts of it that the candidate is checked with.
        z_loss: the factors of it that the candidate is checked with.
        ignore_index: the target of tokens without a loss; None where the candidate knows none.
        upcast: the loss of lower precisions is computed, and returned, in float32.
        padded: columns behind the vocabulary, which belong to no token: their logits are drawn as
            all others, count for nothing, and have no gradient.

    Raises:
        InvalidArgument: a reduction that there is not.
    """
    require_some("reductions", reductions, REDUCTIONS)
    kept = {"reduction": reductions, "label_smoothing": label_smoothing, "z_loss": z_loss}
    loss = _Loss(kept, ignore_index, upcast, padded, even, scaled.among("embedding", models))
    return Spec(
        name="cross_entropy",
        modes=("constant", "inference"),
        cases=loss.cases,
        reference=loss.reference,
        inputs=loss.inputs,
        layout=lambda case: Layout(inputs={"logits": Shard(2)}),
        forward=as_loss,
        budget=_budget,
    )


@dataclass(frozen=True)
class _Loss:
    """What `cross_entropy` was asked for.

    Args:
        choices: dims of which each case has one.
        sizes: those of models, where they are asked for.
    """

    choices: Mapping[str, Sequence[Any]]
    ignore_index: int | None
    upcast: bool
    padded: bool
    even: bool
    sizes: scaled.Among | None

    def cases(self, space: Any) -> Any:
        from hypothesis import strategies as st

        from tpcheck import strategies

        whole = self.even and not self.padded
        dims: dict[str, Any] = {
            "batch": st.integers(1, 3),
            "seq": strategies.sizes(1, 6),
            "vocab": strategies.multiples("tp", most=4) if whole else strategies.at_least("tp", 17),
            "width": self._width,
            **{name: st.sampled_from(list(some)) for name, some in self.choices.items()},
            "ignored": st.booleans() if self.ignore_index is not None else False,
        }
        families = ("normal", "normal", "shifted", "equal", "outlier", "one-hot")
        among = self._vocabularies if self.sizes else None
        return strategies.cases(space, dims, families=families, among=among)

    def _width(self, dims: Mapping[str, Any]) -> Any:
        """The columns of a vocabulary: some more where it is padded."""
        from hypothesis import strategies as st

        vocab, tp = dims["vocab"], dims["tp"]
        if not self.padded:
            return vocab
        return -(-vocab // tp) * tp if self.even else st.integers(vocab, vocab + 3)

    def _vocabularies(self, drawn: Mapping[str, Any]) -> Sequence[scaled.Dims]:
        assert self.sizes is not None
        fits = [d for d in self.sizes(drawn) if self.padded or not self.even or not _left(d, drawn)]
        return [{name: dims[name] for name in ("model", "vocab")} for dims in fits]

    def reference(self, case: Case) -> CrossEntropy:
        return CrossEntropy(
            case["vocab"],
            **{name: case[name] for name in self.choices},
            ignore_index=IGNORED if self.ignore_index is None else self.ignore_index,
            upcast=self.upcast,
        )

    def inputs(self, case: Case, draw: Any) -> Mapping[str, Tensor]:
        logits = draw("logits", case["batch"], case["seq"], case["width"])
        found = edge_targets(case, draw, case["width"], ignored=self.ignore_index)
        targets = found.clamp(max=case["vocab"] - 1)  # none is padding
        return {"logits": logits, "targets": targets}


def _left(dims: Mapping[str, Any], drawn: Mapping[str, Any]) -> int:
    """Ids that are left over when the ranks share a vocabulary."""
    return int(dims["vocab"] % drawn["tp"])


def as_loss(module: Any, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """`forward` of a spec whose one output is a loss."""
    return {"loss": module(*inputs.values())}


def _budget(case: Case) -> Budget:
    tokens = case["batch"] * case["seq"]
    return Budget({"all_reduce": (REDUCED + SMOOTHED * bool(case["label_smoothing"])) * tokens}, {})
