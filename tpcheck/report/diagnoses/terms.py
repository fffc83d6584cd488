"""The sentence of `causes.terms`."""

from __future__ import annotations

from tpcheck.causes import terms as causes
from tpcheck.causes.where import Side
from tpcheck.report.diagnoses.where import called


def sentence(cause: causes.OfTerms) -> str:
    rank, kept = next(iter(cause.kept.items()), ("?", ()))
    what = (
        f"{called(cause.subject)} of rank {rank} counts only {list(kept)} of the {cause.of} "
        f"positions along dim {cause.dim} of {cause.along}"
    )
    if cause.side is Side.INPUT:
        return f"{what}: one rank's term" if cause.own else f"{what}: the parts don't cover it"
    return f"{what}: this rank's own (backward)" if cause.own else what
