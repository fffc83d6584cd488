"""Diagnoses for people: the sentence of each cause, and of the place where a failure is seen first.

`codes` describes each code in a line; `as_json` has the causes as JSON.
"""

from __future__ import annotations

from tpcheck.causes import Cause, OnlyInDtype, OnlyInMode, OnlySavedAt, WhileSaving
from tpcheck.causes.altered import OfAltered
from tpcheck.causes.evident import OfEvidence
from tpcheck.causes.loaded import OfLoading
from tpcheck.causes.losses import OfLosses
from tpcheck.causes.microbatches import OfMicrobatches
from tpcheck.causes.norms import OfNorms
from tpcheck.causes.rows import OfRows
from tpcheck.causes.several import OfSeveral
from tpcheck.causes.steps import OfSteps
from tpcheck.causes.structure import OfStructure
from tpcheck.causes.targets import OfTargets
from tpcheck.causes.tensor import OfTensor
from tpcheck.causes.terms import OfTerms
from tpcheck.causes.tied import OfTied
from tpcheck.causes.traced import OfTrace
from tpcheck.report.diagnoses import (
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


def sentence(cause: Cause) -> str:
    """What is wrong, and what shows it."""
    if isinstance(cause, WhileSaving):
        return f"{sentence(cause.cause)}; so on the ranks that save, at tp={cause.saved_at}"
    if isinstance(cause, OnlySavedAt):
        degree, other = cause.only_saved_at, "right where the ranks load what they saved themselves"
        return f"{sentence(cause.cause)}; so where it was saved at tp={degree}, {other}"
    if isinstance(cause, OnlyInMode):
        return f"{sentence(cause.cause)}; so in the mode {cause.only_in_mode}, right in training"
    if isinstance(cause, OnlyInDtype):
        return f"{sentence(cause.cause)}; so in {cause.only_in}, right in float64"
    if isinstance(cause, OfStructure):
        return structure.sentence(cause)
    if isinstance(cause, OfEvidence):
        return evident.sentence(cause)
    if isinstance(cause, OfTensor):
        return tensor.sentence(cause)
    if isinstance(cause, OfRows):
        return rows.sentence(cause)
    if isinstance(cause, OfLoading):
        return loaded.sentence(cause)
    if isinstance(cause, OfSeveral):
        return several.sentence(cause)
    if isinstance(cause, OfTerms):
        return terms.sentence(cause)
    if isinstance(cause, OfLosses):
        return losses.sentence(cause)
    if isinstance(cause, OfNorms):
        return norms.sentence(cause)
    if isinstance(cause, OfSteps):
        return steps.sentence(cause)
    if isinstance(cause, OfTied):
        return tied.sentence(cause)
    if isinstance(cause, OfTrace):
        return traced.sentence(cause)
    if isinstance(cause, OfTargets):
        return targets.sentence(cause)
    if isinstance(cause, OfAltered):
        return altered.sentence(cause)
    if isinstance(cause, OfMicrobatches):
        return microbatches.sentence(cause)
    return reruns.sentence(cause)
