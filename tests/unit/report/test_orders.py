"""Every mistake of order has a sentence, which opens with its row."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tpcheck.figures import order_causes as causes
from tpcheck.figures.order_causes import OrderCause, Row
from tpcheck.figures.plan import Finding
from tpcheck.figures.plan_causes import Unfed
from tpcheck.report.orders import said
from tpcheck.report.plan import sentence
from tpcheck.tensors.names import Wrapper
from tpcheck.vocabulary import Code

NAMES = ("layers.0.up.weight",)


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (
            causes.NamesChanged(Wrapper.FSDP),
            "FSDP before TP: layers.0.up.weight: replicated along tp; '_fsdp_wrapped_module' "
            "stands in the name, and in no key",
        ),
        (causes.Converted(), "Float8 after FSDP: layers.0.up.weight: FSDP gathers into the module"),
        (causes.Replaced(), "modules replaced after FSDP: layers.0.up.weight: FSDP gathers into"),
        (causes.Removed(), "FSDP before EP: FSDP still shards and gathers layers.0.up.weight, "),
        (
            causes.UnitInWrapper(),
            "activation checkpointing after FSDP: layers.0.up.weight: the wrapper is around",
        ),
        (causes.HooksLost(), "Float8 after TP without its hooks: layers.0.up.weight: the module"),
        (causes.Float8AllGather(), "Float8 + TP + float8 all-gather: layers.0.up.weight: the"),
        (
            causes.ExpertsInABlock("", NAMES, ("norm.weight",)),
            "MoE + EP with per-block FSDP: one FSDP unit, the model, holds layers.0.up.weight and "
            "norm.weight: its reduce-scatter meets the all-to-alls of EP in backward",
        ),
        (causes.RoutedInStages(), "MoE + pipeline parallelism: layers.0.up.weight: tokens are"),
    ],
)
def test_what_is_said(cause: Any, words: str) -> None:
    assert sentence(Finding(Code.ORDER_OF_PARALLELISMS, cause, NAMES)).startswith(words)


def test_every_cause_has_a_sentence_and_every_row_a_cause() -> None:
    assert set(said.registry) - {object} == set(get_args(OrderCause))
    rows = {causes.NamesChanged(wrapper).row for wrapper in Wrapper}
    rows |= {c.row for c in get_args(OrderCause) if c is not causes.NamesChanged}
    assert rows == set(Row)


def test_a_cause_without_a_sentence_is_seen() -> None:
    with pytest.raises(TypeError, match="Unfed has no sentence"):
        said(Unfed(), NAMES)
