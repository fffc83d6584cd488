"""Diagnosis: from expected slices with one known edit to the name of its cause (R = degree)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.diagnosis.edits import (
    CASE,
    COLUMN,
    DB,
    DW,
    DX,
    OUT,
    ROW,
    WIDE,
    Edit,
    add_bias,
    change,
    examine,
    noise,
    terms,
    times,
)
from tpcheck.case import Case
from tpcheck.causes.evident import NotTaken
from tpcheck.causes.where import AfterGradients, AtTensor
from tpcheck.diagnosis.diagnose import first_divergence
from tpcheck.evidence import ReplicasDiffer
from tpcheck.layout import Layout
from tpcheck.spec import Spec
from tpcheck.tensors.names import Key
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Kind, Phase

CAUSES: dict[str, tuple[Spec, Case, Edit, str]] = {
    "output × R": (ROW, CASE, times(OUT, 4), "summed-twice"),
    "input gradient × R": (ROW, CASE, times(DX, 4), "summed-twice"),
    "bias gradient × R²": (ROW, CASE, times(DB, 16), "summed-twice"),
    "bias gradient ÷ R": (ROW, CASE, times(DB, 1 / 4), "averaged-not-summed"),
    "terms of the output": (ROW, CASE, terms(OUT), "missing-all-reduce"),
    "terms of the input gradient": (COLUMN, CASE, terms(DX), "missing-all-reduce"),
    "terms of the bias gradient": (ROW, CASE, terms(DB), "partial-not-reduced"),
    "bias R − 1 times more": (ROW, CASE, add_bias(3), "bias-per-rank"),
    "no bias at all": (ROW, CASE, add_bias(-1), "bias-per-rank"),
    "mirrored output": (COLUMN, CASE, change(OUT, lambda old, r: old[3 - r]), "shard-order"),
    "mirrored bias": (COLUMN, CASE, change(DB, lambda old, r: old[3 - r]), "shard-order"),
    "permuted rows": (COLUMN, CASE, change(DW, lambda old, r: old[r].roll(1, 0)), "shard-order"),
    "permuted tokens": (ROW, CASE, change(OUT, lambda old, r: old[r].flip(1)), "shard-order"),
    "zero gradient": (ROW, CASE, times(DW, 0, 1), "gradient-dropped"),
    "no gradient": (ROW, CASE, change(DW, lambda old, r: None, 2), "gradient-dropped"),
    "nan": (ROW, CASE, times(OUT, torch.nan, 1), "unwritten-memory"),
    "shape": (COLUMN, CASE, change(OUT, lambda old, r: old[r][..., :1]), "wrong-placement"),
    "dtype": (ROW, CASE, change(OUT, lambda old, r: old[r].float()), "precision-loss"),
    "all data": (ROW, WIDE, change(OUT, lambda old, r: old[0] + old[4]), "wrong-group"),
    "a replica's last bit": (ROW, CASE, times(OUT, 1 + 2**-52, 3), "replicas-differ"),
    "noise": (ROW, CASE, noise(OUT), "unclassified"),
    "noise in a vector": (ROW, CASE, noise(DB), "unclassified"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_known_corruption_gets_its_name(name: str) -> None:
    spec, case, edit, code = CAUSES[name]
    assert examine(edit, spec=spec, case=case).code == code


def test_an_output_of_one_dim_can_be_diagnosed() -> None:
    def inputs(case: Case, draw: Any) -> dict[str, Tensor]:
        return {"x": draw("x", 4, 3)}

    rows = Spec("rows", [Case()], lambda c: lambda x: x.sum(-1), inputs, lambda c: Layout())
    assert examine(noise(OUT), spec=rows, case=Case()).code == "unclassified"


def test_the_first_cause_in_the_order_of_computation_is_named() -> None:
    assert examine(times(DW, 0), times(OUT, 1 / 4)).code == "averaged-not-summed"


@pytest.mark.parametrize(
    "order",
    [
        "output/y param_grad/w",
        "input_grad/x output/y@1",
        "param_grad/w param/w output/y@step",
        "output/y@1 param_grad/w",  # gradients add up over the passes
        "input_grad/x@1 param_grad/w param/w",
        "param/w param_grad/w@step2",
    ],
)
def test_the_first_divergence_is_the_first_to_be_computed(order: str) -> None:
    keys = map(Key.parse, order.split())
    found = [Mismatch(key.name, Kind(key.kind), 0) for key in keys]
    for mismatches in (found, found[::-1]):
        first = first_divergence(CaseResult(CASE, "gloo", mismatches))
        assert isinstance(first, AtTensor) and first.name == found[0].tensor


@pytest.mark.parametrize(
    ("of", "phase"),
    [
        (Kind.OUTPUT, Phase.FORWARD),
        (Kind.PARAM_GRAD, Phase.BACKWARD),
        (Kind.PARAM, Phase.STEP),
    ],
)
def test_replicas_differ_in_the_phase_of_what_they_are(of: Kind, phase: Phase) -> None:
    replicas = Mismatch("w", Kind.REPLICA, 1, detail=ReplicasDiffer(of, (0, 1), (1,)))
    assert first_divergence(CaseResult(CASE, "gloo", [replicas])) == AtTensor("w", phase)


def test_what_follows_from_wrong_values_is_not_put_down_to_bits() -> None:
    """An output after the step is wrong on all ranks, which hold terms of it: they differ, too."""
    case = replace(CASE, step=True)
    after = "output/output@step"
    assert examine(terms(after), case=case).code == "missing-all-reduce"
    assert examine(times(after, 1 + 2**-52, 3), case=case).code == "replicas-differ"


@pytest.mark.parametrize(("off", "code"), [(0.0, "bias-per-rank"), (1e-3, "unclassified")])
def test_what_is_nearly_a_multiple_of_a_bias_is_none(off: float, code: str) -> None:
    """Within a few percent two numbers are a multiple of any others."""
    bias = add_bias(3)
    near = change(OUT, lambda old, r: old[r] + off * torch.arange(old[r].shape[-1]))
    assert examine(bias, near).code == code


def test_a_norm_is_not_of_backward_where_every_gradient_agrees() -> None:
    norm = Mismatch("norm", Kind.GRAD_NORM, 0)
    first = first_divergence(CaseResult(CASE, "gloo", [norm]))
    assert first == AfterGradients("norm", Kind.GRAD_NORM)
    gradient = Mismatch("x@1", Kind.INPUT_GRAD, 0)
    assert first_divergence(CaseResult(CASE, "gloo", [norm, gradient])) != first


def test_a_gradient_that_the_reference_does_not_take_is_said_to_be_one() -> None:
    """The reference's is None, and so may be the candidate's; what else is wrong has its name."""

    class Detached(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.detach())

    spec = replace(ROW, reference=lambda case: Detached(8, 12))
    some = change(DX, lambda old, r: torch.ones_like(old[r]))
    named = examine(some, spec=spec)
    assert named.code == "unclassified" and isinstance(named.cause, NotTaken)
    for other in (DW, OUT):
        assert examine(some, times(other, 4), spec=spec).code == "summed-twice"
