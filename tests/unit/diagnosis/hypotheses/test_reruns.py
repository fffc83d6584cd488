"""Hypotheses that another run refutes: another case, or the same one again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.unit.diagnosis.edits import (
    CASE,
    DIMS,
    DW,
    OUT,
    ROW,
    WIDE,
    add_bias,
    dumps_of,
    examine,
    expected,
    judged,
    noise,
    times,
)
from tpcheck import specs
from tpcheck.bounds.arithmetic import UNIT_ROUNDOFF
from tpcheck.case import Case
from tpcheck.causes import OnlyInDtype, OnlyInMode
from tpcheck.causes.evident import NaNOfArithmetic
from tpcheck.causes.reruns import NothingKnownInDtype
from tpcheck.causes.where import Subject
from tpcheck.diagnosis import diagnose
from tpcheck.diagnosis.facts import Facts
from tpcheck.evidence import Values
from tpcheck.oracle.pose import Posed, pose
from tpcheck.spec import Spec
from tpcheck.verdict import CaseResult
from tpcheck.vocabulary import Kind

LOW = replace(CASE, dtype="float32")

HEADS: dict[str, Any] = {"batch": 1, "seq": 3, "hidden": 6, "heads": 4, "kv_heads": 2}

FLAGS = dict.fromkeys(("bias", "residual", "qk_norm", "rotary", "causal"), False)

GQA = Case(dims=HEADS | FLAGS | {"head_dim": 2, "norm": "none"}, mesh={"tp": 4})

RERUNS: dict[str, tuple[Spec, Case, Callable[[Case], bool], str]] = {
    "right without dp": (ROW, WIDE, lambda c: "dp" not in c.mesh, "wrong-group"),
    "right as MHA": (specs.attention(), GQA, lambda c: c["kv_heads"] == 4, "kv-head-map"),
}


def equal_kv_heads(posed: Posed) -> bool:
    weight = posed.problems[0].params.get("k_proj.weight")
    return weight is not None and torch.equal(*weight.chunk(2))


@pytest.mark.parametrize("name", RERUNS)
def test_another_case_that_passes_narrows_the_cause(name: str) -> None:
    spec, case, right, code = RERUNS[name]
    edit = noise(OUT)

    def right_posed(posed: Posed) -> bool:
        return right(posed.case) or equal_kv_heads(posed)

    found = examine(edit, spec=spec, case=case, right=right, right_posed=right_posed)
    assert found.code == code
    assert examine(noise(OUT), spec=spec, case=case).code == "unclassified"


def test_a_small_error_that_float64_lacks_is_a_loss_of_precision() -> None:
    assert examine(times(OUT, 4), case=LOW).code == "summed-twice"
    small = examine(times(OUT, 1 + 2**-8), case=LOW, right=lambda c: c.dtype == "float64")
    assert small.code == "precision-loss"


def test_one_factor_in_all_elements_is_no_loss_of_precision() -> None:
    """Of which no element is outside of its bound: all together are."""
    case = replace(CASE, dtype="bfloat16", dims=DIMS | {"batch": 16, "seq": 32, "out_features": 32})
    posed = pose(ROW, case)
    ranks = expected(posed)
    times(OUT, 1 + 2**-7)(ranks, posed)
    first, *_ = judged(posed, ranks).mismatches
    own = first.detail
    assert first.error is not None and first.bound is not None and isinstance(own, Values)
    assert first.error <= first.bound and own.gain_error is not None
    assert own.gain_error > UNIT_ROUNDOFF[torch.bfloat16]
    named = examine(times(OUT, 1 + 2**-7), case=case, right=lambda c: c.dtype == "float64")
    assert isinstance(named.cause, OnlyInDtype | NothingKnownInDtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_error_too_large_for_rounding_is_no_loss_of_precision(dtype: str) -> None:
    case = replace(CASE, dtype=dtype)
    for edit, code in ((times(OUT, 4), "summed-twice"), (add_bias(3), "bias-per-rank")):
        named = examine(edit, case=case, right=lambda c: c.dtype == "float64")
        assert named.code == code
        assert isinstance(named.cause, OnlyInDtype) and named.cause.only_in == dtype
        assert f"so in {dtype}, right in float64" in named.message
    other = examine(noise(OUT), case=case, right=lambda c: c.dtype == "float64")
    assert other.code == "unclassified"
    assert other.cause == NothingKnownInDtype(Subject(Kind.OUTPUT, "output"), dtype)


def test_what_is_right_in_training_is_told_with_its_mode() -> None:
    case = replace(CASE, mode="eval")
    for edit, code in ((times(OUT, 4), "summed-twice"), (noise(OUT), "unclassified")):
        named = examine(edit, case=case, right=lambda c: c.mode == "train")
        assert named.code == code
        assert isinstance(named.cause, OnlyInMode) and named.cause.only_in_mode == "eval"
        assert named.message.endswith("; so in the mode eval, right in training")
        wrong = examine(edit, case=case)
        assert wrong.code == code and not isinstance(wrong.cause, OnlyInMode)


def test_evidence_that_changes_from_run_to_run_is_a_stale_buffer() -> None:
    posed = pose(ROW, CASE)
    first, second = expected(posed), expected(posed)
    times(OUT, 4)(first, posed)
    found = judged(posed, first)
    for dumps, code in ((second, "stale-buffer"), (first, "summed-twice")):
        facts = Facts(posed, found, found, dumps_of(dumps), lambda c: None)
        assert diagnose.diagnose(facts).code == code


def test_nan_in_both_runs_is_no_change_from_run_to_run() -> None:
    assert examine(times(OUT, 4), times(DW, torch.nan)).code == "summed-twice"


def test_nan_that_numbers_near_one_do_not_make_are_of_arithmetic() -> None:
    far = replace(CASE, magnitude=4)
    named = examine(times(OUT, torch.nan), case=far, right=lambda c: c.magnitude == 0)
    assert named.code == "unclassified" and isinstance(named.cause, NaNOfArithmetic)
    for still in (far, CASE):  # wrong with any numbers: never written
        assert examine(times(OUT, torch.nan), case=still).code == "unwritten-memory"


def test_one_rank_that_was_asked_is_not_asked_again() -> None:
    """It was right there; another case of it, of one microbatch, would say no more."""
    posed = pose(ROW, CASE)
    ranks = expected(posed)
    times(OUT, 4)(ranks, posed)
    found = judged(posed, ranks)
    asked: list[Case] = []

    def rerun(case: Case) -> CaseResult:
        asked.append(case)
        return CaseResult(case, "gloo", found.mismatches)

    right = CaseResult(CASE, "gloo", [])
    for alone, code in ((None, "unclassified"), (found, "unclassified"), (right, "summed-twice")):
        asked.clear()
        facts = Facts(posed, found, found, dumps_of(ranks), rerun, ROW, alone=alone)
        assert diagnose.diagnose(facts).code == code
        assert any(case.world_size == 1 for case in asked) == (code == "unclassified")
