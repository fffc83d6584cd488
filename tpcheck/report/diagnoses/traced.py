"""The sentences of `causes.traced`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import traced as causes
from tpcheck.errors import counted
from tpcheck.report.diagnoses.where import called


@singledispatch
def sentence(cause: causes.OfTrace) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.CollectiveLeftOut) -> str:
    what = f"{called(cause.subject)}: {cause.phase} ran no {' or '.join(cause.lacking)}"
    return f"{what}: only this rank's rows count" if "all_gather" in cause.lacking else what


@sentence.register
def _(cause: causes.SummedInPart) -> str:
    what = f"{called(cause.subject)} has {counted(cause.due, 'element')}"
    return f"{what}, and {cause.phase} sums {cause.ran} over the ranks: the others' terms are lost"
