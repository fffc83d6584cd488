"""The sentences of `causes.altered`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import altered as causes
from tpcheck.report.diagnoses.where import called


@singledispatch
def sentence(cause: causes.OfAltered) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.Regathered) -> str:
    how = gathered(cause.gathered)
    return f"{called(cause.subject)} is what the parts of {cause.name}, {how}, would give"


def gathered(how: causes.Gathered) -> str:
    """The wrong way in which parts were put together."""
    match how:
        case causes.Reversed():
            return "in reversed order"
        case causes.Rotated():
            return "one rank off"
    return f"gathered along dim {how.dim} instead of {how.instead_of}"


@sentence.register
def _(cause: causes.OwnPartOnly) -> str:
    return (
        f"{called(cause.subject)} of ranks {list(cause.ranks)} is what the reference gives for "
        f"their own part of {', '.join(cause.inputs)} alone: what other ranks hold of it never "
        "arrives (forward)"
    )


@sentence.register
def _(cause: causes.Regrouped) -> str:
    a, b = cause.groups
    return (
        f"{called(cause.subject)} is what dim {cause.dim} of {cause.parameter} regrouped, "
        f"{a} × {b} transposed, would give: what meets it (heads, say) arrives in another order"
    )


@sentence.register
def _(cause: causes.ScaledByOwnParts) -> str:
    return (
        f"{called(cause.subject)} is what the reference gives for each rank's part of "
        f"{', '.join(cause.parts_of)} by itself, added up: a scale, or a largest number, of all "
        "parts is taken of one"
    )


@sentence.register
def _(cause: causes.RowsMixed) -> str:
    return (
        f"{called(cause.subject)} is right where all rows of {cause.mixed} along dim {cause.dim} "
        "are the same: rows meet the results of other rows"
    )
