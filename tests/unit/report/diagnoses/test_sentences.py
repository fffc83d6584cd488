"""Every cause has a sentence, and the JSON that reports have had since before causes were data."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from tests.unit.report.diagnoses.said import (
    OUT,
    Said,
    altered,
    evident,
    loaded,
    losses,
    microbatches,
    norms,
    reruns,
    rows,
    several,
    steps,
    structure,
    targets,
    tensor,
    terms,
    tied,
    traced,
)
from tpcheck.causes import Cause, OnlyInDtype, OnlyInMode, OnlySavedAt, WhileSaving
from tpcheck.causes.altered import RowsMixed
from tpcheck.causes.loaded import LoadedNaN
from tpcheck.causes.structure import RanksRaised
from tpcheck.causes.tensor import Scaled
from tpcheck.causes.where import (
    AfterGradients,
    AtCollective,
    AtFinalize,
    AtModule,
    AtTensor,
    BeforeForward,
    Early,
    FirstSeen,
    LeftInGradient,
    OnlyCompiled,
    Subject,
    Unfinished,
)
from tpcheck.report.as_json import plain
from tpcheck.report.diagnoses import sentence
from tpcheck.report.diagnoses.as_json import evidence_of
from tpcheck.report.diagnoses.where import called, first_seen
from tpcheck.vocabulary import Kind, Phase

SAID: list[Said] = [
    *structure.SAID,
    *evident.SAID,
    *tensor.SAID,
    *rows.SAID,
    *loaded.SAID,
    *several.SAID,
    *altered.SAID,
    *terms.SAID,
    *microbatches.SAID,
    *reruns.SAID,
    *losses.SAID,
    *targets.SAID,
    *tied.SAID,
    *traced.SAID,
    *norms.SAID,
    *steps.SAID,
    (
        OnlyInDtype(Scaled(OUT, 2.0, (0, 1), world=True), "bfloat16"),
        "output: every element is world_size × the reference; so in bfloat16, right in float64",
        {"factor": 2.0, "ranks": [0, 1], "only_in": "bfloat16"},
    ),
    (
        OnlyInMode(OnlyInDtype(Scaled(OUT, 2.0, (0, 1), world=True), "bfloat16"), "eval"),
        "output: every element is world_size × the reference; so in bfloat16, right in float64; so "
        "in the mode eval, right in training",
        {"factor": 2.0, "only_in": "bfloat16", "only_in_mode": "eval"},
    ),
    (
        OnlySavedAt(LoadedNaN("w", 0), 4),
        "w as loaded on rank 0 has uninitialized elements (tpcheck's NaN); so where it was saved "
        "at tp=4, right where the ranks load what they saved themselves",
        {"parameter": "w", "only_saved_at": 4},
    ),
    (
        WhileSaving(RanksRaised((3,), False, "OSError", "no room", Phase.SAVE, None), 4),
        "rank 3 raised OSError: no room (in save); so on the ranks that save, at tp=4",
        {"ranks": [3], "saved_at": 4},
    ),
]


@pytest.mark.parametrize(("cause", "said", "evidence"), SAID, ids=lambda v: type(v).__name__)
def test_a_cause_has_its_sentence_and_its_evidence(
    cause: Cause, said: str, evidence: dict[str, Any]
) -> None:
    assert sentence(cause) == said
    written = json.loads(json.dumps(plain(evidence_of(cause)), allow_nan=False))
    assert {key: written[key] for key in evidence} == evidence


def untold(causes: tuple[type, ...], said: list[Said]) -> set[str]:
    """The causes that have no example here."""
    return {cause.__name__ for cause in causes} - {type(cause).__name__ for cause, *_ in said}


def test_every_cause_is_in_the_table_above() -> None:
    assert untold(get_args(Cause), SAID) == set()


def test_the_twin_a_cause_that_is_left_out_is_seen() -> None:
    rest = [row for row in SAID if not isinstance(row[0], RowsMixed)]
    assert untold(get_args(Cause), rest) == {"RowsMixed"}


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (Subject(Kind.OUTPUT, "output"), "output"),
        (Subject(Kind.OUTPUT, "output@step"), "output@step"),
        (Subject(Kind.OUTPUT, "output.0"), "output.0"),
        (Subject(Kind.OUTPUT, "outputs"), "output outputs"),
        (Subject(Kind.LOSS, "loss"), "loss"),
        (Subject(Kind.PARAM_GRAD, "output"), "param_grad output"),
        (Subject(Kind.OUTPUT, "mlp.down", side="out"), "output of mlp.down"),
        (Subject(Kind.OUTPUT, "", side="in"), "input of the outermost module"),
        (Subject(Kind.INPUT_GRAD, "mlp", side="in"), "gradient at the input of mlp"),
        (Subject(Kind.INPUT_GRAD, "mlp", side="out"), "gradient at the output of mlp"),
    ],
)
def test_no_word_is_said_twice_of_a_tensor(subject: Subject, words: str) -> None:
    assert called(subject) == words


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (None, None),
        (AtModule("mlp.down", Phase.FORWARD), "mlp.down (forward); everything upstream agrees"),
        (
            AtModule("", Phase.FORWARD, after="down"),
            "the outermost module (forward), after down: what down returns are terms of a sum, "
            "to be added up after it; everything upstream agrees",
        ),
        (AtTensor("x", Phase.BACKWARD), "x (backward)"),
        (AtTensor("w", Phase.STEP), "w (after the step)"),
        (AtCollective("mlp", Phase.BACKWARD), "mlp (backward)"),
        (
            BeforeForward("up.weight", Early.LOADED),
            "up.weight as load left it, before the first forward",
        ),
        (
            BeforeForward("t", Early.COMPUTED),
            "t as the candidate computes it, before the first forward",
        ),
        (BeforeForward("w", Early.HELD), "w as the candidate holds it, before the first forward"),
        (
            AtFinalize("w", Unfinished.RIGHT),
            "w after finalize; what backward left is right",
        ),
        (
            AtFinalize("w", Unfinished.TERMS),
            "w after finalize; what backward left on the ranks adds up to what is right",
        ),
        (
            AtFinalize("w", Unfinished.LEFT),
            "w after backward; what the ranks have adds up to what is right, and finalize leaves "
            "it so",
        ),
        (AtFinalize("w", Unfinished.UNKNOWN), "w after backward and finalize, which changes it"),
        (AfterGradients("norm", Kind.GRAD_NORM), "norm (clipping); every gradient agrees"),
        (
            AfterGradients("w@step2", Kind.PARAM),
            "w@step2 (after step 2); every gradient agrees",
        ),
        (
            AfterGradients("w.mean", Kind.OPTIMIZER_STATE, clipped=True),
            "w.mean (after clipping and the step); every gradient agrees, and their norm",
        ),
        (
            AfterGradients("seen", Kind.PARAM, buffer=True),
            "seen after the last pass: a buffer; outputs and gradients agree",
        ),
        (
            LeftInGradient("w@step2"),
            "w@step2 before its backward: the gradient of the step before is still in it",
        ),
        (
            OnlyCompiled(AtTensor("output", Phase.FORWARD)),
            "output (forward), only where torch.compile is on",
        ),
    ],
)
def test_where_it_is_seen_first(seen: FirstSeen | None, words: str | None) -> None:
    assert first_seen(seen) == words
