"""The sentences of `causes.reruns`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import reruns as causes
from tpcheck.errors import counted
from tpcheck.report.diagnoses.where import called
from tpcheck.vocabulary import Kind

#: What a case does that leaves no tensors.
_ENDS = {Kind.EXCEPTION: "raises", Kind.HANG: "hangs", Kind.CRASH: "dies"}


@singledispatch
def sentence(cause: causes.OfReruns) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.RightWithoutData) -> str:
    dp, tp = (cause.mesh.get(axis, 1) for axis in ("dp", "tp"))
    what = "a collective runs over the wrong group"
    if cause.exchanged:
        what = f"what the dp={dp} ranks of the same shards make of what they exchange is not right"
    return (
        f"{called(cause.subject)} is wrong on a {dp} × {tp} mesh and right on tp={tp} alone: {what}"
    )


@sentence.register
def _(cause: causes.WrongOnOneRank) -> str:
    factor = ""
    if cause.factor is not None:
        factor = f" ({cause.factor:g} × it)"
        if cause.of is not None:
            factor = f" (off by {cause.factor:+g} × {cause.of})"
    return (
        f"{called(cause.subject)} is wrong at tp=1, too, where no rank exchanges anything with "
        f"another: the arithmetic is not the reference's{factor}"
    )


@sentence.register
def _(cause: causes.RoundingOnly) -> str:
    return (
        f"{called(cause.subject)} is right in float64 and off by {cause.error_over_bound:.3g} × "
        "its bound here, which is no more than a coarser dtype rounds"
    )


@sentence.register
def _(cause: causes.RoundedOnTheWay) -> str:
    return (
        f"{called(cause.subject)} is off by no more than a coarser dtype rounds, and by something "
        "else where inputs are a little larger or smaller: it is rounded on the way, whatever the "
        "case's dtype is"
    )


@sentence.register
def _(cause: causes.NothingKnownInDtype) -> str:
    return (
        f"{called(cause.subject)} is wrong in {cause.only_in} and right in float64, by more than a "
        "coarser dtype rounds; none of the known causes fits"
    )


@sentence.register
def _(cause: causes.WrongAfter) -> str:
    others = f" and {counted(cause.others, 'other')} before that" if cause.others else ""
    ends = _ENDS.get(cause.subject.kind)
    found = f"the case is right alone, and {ends}" if ends else None
    return (
        f"{found or f'{called(cause.subject)} is right alone, and wrong'} after the case "
        f"{cause.before}{others} in the same process: something is kept between calls"
    )


@sentence.register
def _(cause: causes.ChangesOnRerun) -> str:
    return (
        f"{called(cause.subject)} {list(cause.index)} was {cause.first:.6g} and, run again, "
        f"{cause.second:.6g}: read too early"
    )


@sentence.register
def _(cause: causes.RightWithEqualHeads) -> str:
    return (
        f"{called(cause.subject)} is wrong with {cause.heads} query, {cause.kv} K/V heads and "
        f"right with {cause.heads} of each"
    )


@sentence.register
def _(cause: causes.RightWhenContiguous) -> str:
    return (
        f"{called(cause.subject)} is wrong where tensors are {cause.memory} in memory and right "
        "where they are contiguous: strides are not used, or not all"
    )


@sentence.register
def _(cause: causes.RightForOnes) -> str:
    right = f"{called(cause.subject)} is right where all upstream gradients are ones, and"
    if cause.rounded:
        return (
            f"{right} off by no more than a coarser dtype rounds for others: that is done to them"
        )
    return f"{right} wrong for others: they are not used, not all of them, or not as they are"


@sentence.register
def _(cause: causes.RightForAllGradients) -> str:
    raised = cause.subject.kind is Kind.EXCEPTION
    what = "it raises" if raised else f"{called(cause.subject)} is wrong"
    asked = "no gradient is" if cause.none else "only some gradients are"
    return f"{what} where {asked} asked for, and not where all are"


@sentence.register
def _(cause: causes.RightWhenApart) -> str:
    return (
        f"{called(cause.subject)} is wrong where two arguments are the same tensor, and right "
        "where each has its own memory"
    )


@sentence.register
def _(cause: causes.RightWhenFinite) -> str:
    return (
        f"{called(cause.subject)} is wrong in rows of finite numbers where other rows have ∞, and "
        "right where none has: rows are not independent"
    )


@sentence.register
def _(cause: causes.RightInAnotherConfiguration) -> str:
    return (
        f"{called(cause.subject)} is wrong where the autotuned kernel runs with {cause.wrong}, and "
        f"right with {cause.right}"
    )
