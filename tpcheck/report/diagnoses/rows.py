"""The sentences of `causes.rows`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import rows as causes
from tpcheck.errors import counted
from tpcheck.report.diagnoses.where import called

#: Rows of a map that are shown: enough to see its pattern; all of them are in the JSON report.
ROWS_SHOWN = 12


@singledispatch
def sentence(cause: causes.OfRows) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.RowsPermuted) -> str:
    rows = list(cause.rows[:ROWS_SHOWN])
    return f"{called(cause.subject)}: dim {cause.dim} of rank {cause.rank} holds the rows {rows}"


@sentence.register
def _(cause: causes.RowsOfTokens) -> str:
    return f"{called(cause.subject)}: {cause.rows} of {counted(cause.held, 'row')} wrong, by token"
