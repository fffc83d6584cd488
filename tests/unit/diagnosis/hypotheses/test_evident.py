"""Causes that one mismatch says by itself."""

from __future__ import annotations

from dataclasses import replace

import torch

from tests.unit.diagnosis.edits import DB, DW, OUT, alone, examine, times
from tpcheck.evidence import Absent, Elsewhere
from tpcheck.verdict import Diagnosis, Mismatch
from tpcheck.vocabulary import Kind


def test_outputs_of_other_names_are_named() -> None:
    def named(*returned: str) -> Diagnosis:
        names = Absent(returned, ("output",))
        return alone(Mismatch("output", Kind.OUTPUT, 0, detail=names))

    assert named("output.0").code == "plan-entry-unmatched"
    assert named("output.0").message == "the candidate returns output.0, the reference output"
    assert "returns nothing that is a tensor, the reference output" in named().message


def test_only_a_gradient_may_be_dropped() -> None:
    missing = Mismatch("w", Kind.PARAM_GRAD, 1, detail=Absent())
    assert alone(missing).code == "gradient-dropped"
    assert alone(replace(missing, kind=Kind.PARAM)).code == "unclassified"


def test_an_output_of_other_ranks_is_misplaced() -> None:
    elsewhere = Elsewhere({"pp": 0}, {"pp": 1})
    early = alone(Mismatch("output", Kind.OUTPUT, 0, detail=elsewhere))
    assert early.code == "wrong-placement"
    assert early.message == (
        "output is on the ranks of pp=0; the layout has it on those of pp=1 only"
    )


def test_a_nan_is_not_said_to_be_unwritten_memory_for_sure() -> None:
    found = examine(times(OUT, torch.nan, 1))
    assert found.code == "unwritten-memory" and "unless arithmetic made it" in found.message


def test_a_nan_does_not_outrank_what_is_wrong_without_one() -> None:
    """Of gradients one is NaN, which nobody wrote, and another, which does not follow from it, four
    times what it should be."""
    both = examine(times(DB, torch.nan, 1), times(DW, 4.0))
    assert both.code == "summed-twice" and "weight" in both.message
    assert examine(times(DB, torch.nan, 1)).code == "unwritten-memory"
