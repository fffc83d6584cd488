"""The sentences of `causes.loaded`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import loaded as causes
from tpcheck.report.diagnoses.rows import ROWS_SHOWN


def _what(cause: causes.OfLoading) -> str:
    return f"{cause.parameter} as loaded on rank {cause.rank}"


@singledispatch
def sentence(cause: causes.OfLoading) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.LoadedNaN) -> str:
    return f"{_what(cause)} has uninitialized elements (NaN)"


@sentence.register
def _(cause: causes.LoadedRounded) -> str:
    return f"{_what(cause)} was rounded to a lower precision"


@sentence.register
def _(cause: causes.LoadedRows) -> str:
    rows = list(cause.rows[:ROWS_SHOWN])
    repeated = ", some of them more than once" if cause.repeated else ""
    return f"{_what(cause)} holds the rows {rows} of dim {cause.dim}{repeated}"


@sentence.register
def _(cause: causes.LoadedElements) -> str:
    return f"{_what(cause)} holds elements of the full weight, sharded or laid out otherwise"


@sentence.register
def _(cause: causes.LoadedAnother) -> str:
    return f"{_what(cause)} holds rows of another parameter of the fused weight"


@sentence.register
def _(cause: causes.LoadedApart) -> str:
    return f"{_what(cause)} differs from other ranks', which hold the same parameter"
