"""The sentences of `causes.loaded`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import loaded as causes
from tpcheck.report.diagnoses.rows import ROWS_SHOWN


def _what(cause: causes.OfLoading) -> str:
    if isinstance(cause, causes.ComputedOtherwise):
        return f"the buffer {cause.buffer}, which no checkpoint holds, on rank {cause.rank}"
    return f"{cause.parameter} as loaded on rank {cause.rank}"


@singledispatch
def sentence(cause: causes.OfLoading) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.LoadedNaN) -> str:
    return f"{_what(cause)} has uninitialized elements (tpcheck's NaN)"


@sentence.register
def _(cause: causes.LoadedNothing) -> str:
    return f"{_what(cause)} is what a new optimizer has, nothing or zeros"


@sentence.register
def _(cause: causes.LoadedIntegers) -> str:
    if cause.of_rank is not None:
        return f"{_what(cause)} holds rank {cause.of_rank}'s part"
    return f"{_what(cause)} has integers or bools that are not the checkpoint's"


@sentence.register
def _(cause: causes.LoadedRounded) -> str:
    return f"{_what(cause)} was rounded to a lower precision"


@sentence.register
def _(cause: causes.LoadedRows) -> str:
    rows = list(cause.rows[:ROWS_SHOWN])
    repeated = ", some of them more than once" if cause.repeated else ""
    due = f"; {list(cause.due[:ROWS_SHOWN])} are due" if cause.due else ""
    return f"{_what(cause)} holds the indices {rows} of dim {cause.dim}{repeated}{due}"


@sentence.register
def _(cause: causes.LoadedElements) -> str:
    return f"{_what(cause)} holds elements of the full weight, sharded or laid out otherwise"


@sentence.register
def _(cause: causes.LoadedScaled) -> str:
    return f"{_what(cause)} is {cause.factor:.4g} times what it should be"


@sentence.register
def _(cause: causes.LoadedAnother) -> str:
    return f"{_what(cause)} holds rows of {', '.join(cause.of)}"


@sentence.register
def _(cause: causes.LoadedApart) -> str:
    return f"{_what(cause)} differs from other ranks', which hold the same parameter"


@sentence.register
def _(cause: causes.ComputedOtherwise) -> str:
    if cause.nan:
        nan = "uninitialized elements (tpcheck's NaN)"
        return f"{_what(cause)} has {nan}: the candidate must compute it"
    if cause.rounded:
        return f"{_what(cause)} was computed in a lower precision than the reference's"
    said = f"{_what(cause)} is not what the reference computes"
    if cause.factor is not None:
        return f"{said}: it is {cause.factor:.4g} times that"
    if cause.rows is not None:
        return f"{said}: it has the indices {list(cause.rows[:ROWS_SHOWN])} of dim {cause.dim}"
    return f"{said}, nor what other ranks have" if cause.apart else said
