"""Spec of the output head and its cross-entropy as one fused operation over vocabulary shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from tpcheck.budget import Budget, linear_in
from tpcheck.case import MODES, Case
from tpcheck.configurations import Models
from tpcheck.given import require_some
from tpcheck.layout import Layout
from tpcheck.placement import Shard
from tpcheck.spec import Spec
from tpcheck.specs import reference, scaled
from tpcheck.specs.cross_entropy import (
    IGNORED,
    REDUCED,
    REDUCTIONS,
    SMOOTHED,
    CrossEntropy,
    as_loss,
)
from tpcheck.specs.edges import edge_targets
from tpcheck.specs.tokens import residual_stream, token_dims


class LinearCrossEntropy(nn.Module):
    """x [B, S, H], targets [B, S] → the loss of x · weightᵀ, as `CrossEntropy` has it. Parameter:
    ``weight`` [V, H]."""

    def __init__(self, vocab: int, hidden: int, **loss: Any) -> None:
        super().__init__()
        self.weight = reference.Linear(hidden, vocab, bias=False).weight
        self.loss = CrossEntropy(vocab, ignore_index=IGNORED, **loss)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        logits = reference.matmul(x, self.weight, transposed=False)
        loss: Tensor = self.loss(logits, targets)
        return loss


def linear_cross_entropy(
    *,
    reductions: Sequence[str] = REDUCTIONS,
    label_smoothing: Sequence[float] = (0.0,),
    z_loss: Sequence[float] = (0.0,),
    sequence_parallel: bool = False,
    even: bool = False,
    models: Models = (),
) -> Spec:
    """The head and its loss in one, which need not keep the logits: x `Replicate` (`Shard(1)` under
    SP), targets `Replicate` → loss `Replicate`.

    Dims: `batch`, `seq`, `hidden`, `vocab` (odd ones too, unless `even`), `chunks` (into how many
    parts the tokens may be cut, at least 1), `reduction`, `label_smoothing`, `z_loss`, `ignored`:
    whether the target of some tokens is -100. Parameter: `weight` [V, H], `Shard(0)`. Under
    `models`, only their sizes (`specs/scaled`).

    Where communication is audited, so is what is saved for backward: x and a few numbers per token,
    and no logits.

    Args:
        reductions: those that the candidate has, of "mean", "sum" and "none".
        label_smoothing: the amounts of it that the candidate is checked with.
        z_loss: the factors of it that the candidate is checked with.

    Raises:
        InvalidArgument: a reduction that there is not.
    """
    require_some("reductions", reductions, REDUCTIONS)
    kept = {"reduction": reductions, "label_smoothing": label_smoothing, "z_loss": z_loss}
    sizes = scaled.among("embedding", models, even=even)

    def cases(space: Any) -> Any:
        from hypothesis import strategies as st

        from tpcheck import strategies

        some = strategies.multiples("tp", most=4) if even else strategies.at_least("tp", 17)
        dims: dict[str, Any] = {
            **token_dims(sequence_parallel, batch=3, parts=3),
            "hidden": strategies.sizes(1, 6),
            "vocab": some,
            "chunks": strategies.sizes(1, 4),
            **{name: st.sampled_from(list(of)) for name, of in kept.items()},
            "ignored": st.booleans(),
        }
        return strategies.cases(space, dims, among=sizes)

    def budget(case: Case) -> Budget:
        tokens = case["batch"] * case["seq"]
        width = tokens * case["hidden"]
        each = REDUCED + SMOOTHED * bool(case["label_smoothing"])
        projected = linear_in(width, sequence_parallel=sequence_parallel)
        contiguous = case.memory == "contiguous"  # of other inputs the storages say nothing
        saved = width + FEW * (tokens + 1) if contiguous else None
        return projected + Budget({"all_reduce": each * tokens}, saved=saved)

    return Spec(
        name="linear_cross_entropy_sp" if sequence_parallel else "linear_cross_entropy",
        modes=MODES[1:],
        cases=cases,
        reference=lambda case: LinearCrossEntropy(
            case["vocab"], case["hidden"], **{name: case[name] for name in kept}
        ),
        inputs=_inputs,
        layout=lambda case: Layout(
            params={"weight": Shard(0)}, inputs={"x": residual_stream(sequence_parallel)}
        ),
        forward=as_loss,
        budget=budget,
    )


#: Numbers that may be saved besides x, per token and in all: targets, statistics, what counts.
FEW = 8


def _inputs(case: Case, draw: Any) -> Mapping[str, Tensor]:
    x = draw("x", case["batch"], case["seq"], case["hidden"])
    return {"x": x, "targets": edge_targets(case, draw, case["vocab"], ignored=IGNORED)}
