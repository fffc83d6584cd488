"""The sentences of `causes.evident`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import evident as causes
from tpcheck.errors import counted
from tpcheck.report.diagnoses.where import called
from tpcheck.report.evidence import place
from tpcheck.report.names import brief


@singledispatch
def sentence(cause: causes.OfEvidence) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.NoGradient) -> str:
    return f"{called(cause.subject)}: no gradient (None) on rank {cause.rank}"


@sentence.register
def _(cause: causes.NotTaken) -> str:
    return (
        f"{called(cause.subject)}: the reference takes none: nothing that it returns depends on "
        "the tensor, or it detaches that, or runs under torch.no_grad; the candidate takes one"
    )


@sentence.register
def _(cause: causes.OutputsNamedOtherwise) -> str:
    returned = ", ".join(cause.returned) or "nothing that is a tensor"
    return f"the candidate returns {returned}, the reference {', '.join(cause.wanted)}"


@sentence.register
def _(cause: causes.OnOtherRanks) -> str:
    return f"{called(cause.subject)} {place(cause.seen)}"


@sentence.register
def _(cause: causes.OtherPlacement) -> str:
    says = f"{cause.placement} is not the layout's {cause.expected_placement}"
    return f"{called(cause.subject)}: {says}"


@sentence.register
def _(cause: causes.OtherShape) -> str:
    has, due = list(cause.shape), list(cause.expected_shape)
    return f"{called(cause.subject)}: shape {has}, expected {due}"


@sentence.register
def _(cause: causes.HoldsNaN) -> str:
    said = f"{called(cause.subject)} has NaN in {counted(cause.nan, 'element')}: tpcheck fills "
    if not cause.undefined:
        return f"{said}unwritten memory with that, unless arithmetic made it (an overflow, 0/0)"
    loads = "loads lanes that its mask" if len(cause.undefined) == 1 else "load lanes that a mask"
    return (
        f"{said}with that what is undefined, and {brief(cause.undefined)} {loads} leaves out, "
        "without other=; else memory that was not written, or arithmetic (an overflow, 0/0), "
        "made it"
    )


@sentence.register
def _(cause: causes.NaNOfArithmetic) -> str:
    return (
        f"{called(cause.subject)} has NaN in {counted(cause.nan, 'element')}, and in none where "
        "the inputs are numbers near 1: arithmetic made it (an overflow, ∞ − ∞, 0/0)"
    )


@sentence.register
def _(cause: causes.OtherDtype) -> str:
    return f"{called(cause.subject)} is {cause.seen.dtype}, expected {cause.seen.expected_dtype}"


@sentence.register
def _(cause: causes.BitsDiffer) -> str:
    return f"{cause.name}: ranks {list(cause.ranks)} hold different bits"
