"""Spec of a whole causal language model, as frameworks give them: token ids in, logits out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from tpcheck.case import Case
from tpcheck.layout import Layout
from tpcheck.spec import Spec


def causal_lm(
    reference: Callable[[Case], nn.Module],
    *,
    cases: Any,
    layout: Callable[[Case], Layout] | None = None,
    forward: Callable[[Any, Mapping[str, Tensor]], Any] | None = None,
    name: str = "causal_lm",
    **more: Any,
) -> Spec:
    """A model over ids [B, S]; `cases` gives the dims `batch`, `seq`, `vocab` and the model's own.

    Where the candidate's parameters are DTensors, their layout is read from them and `layout`
    may be left out.

    Args:
        reference: case → the unsharded model.
        forward: (model, inputs) → logits; by default `model(ids)`.
        more: further fields of `Spec`.
    """

    def inputs(case: Case, draw: Any) -> Mapping[str, Tensor]:
        return {"ids": draw.integers("ids", 0, case["vocab"], case["batch"], case["seq"])}

    return Spec(
        name=name,
        cases=cases,
        reference=reference,
        inputs=inputs,
        layout=layout or (lambda case: Layout()),
        forward=forward,
        **more,
    )
