"""The sentences of `causes.targets`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import targets as causes
from tpcheck.errors import counted
from tpcheck.report.diagnoses.where import called


@singledispatch
def sentence(cause: causes.OfTargets) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.LossOfOtherTargets) -> str:
    return (
        f"{called(cause.subject)} of rank {cause.rank} is that of other {cause.ids}: of "
        f"{cause.taken} in the place of {cause.given}, say"
    )


@sentence.register
def _(cause: causes.LogitsOfForeignTargets) -> str:
    return (
        f"{called(cause.subject)}: ranks that do not have the column of a token's {cause.ids} add "
        f"one of their own {cause.logits} (right where these are 0)"
    )


@sentence.register
def _(cause: causes.TargetsColumn) -> str:
    return (
        f"{called(cause.subject)}: the target's own term is missing from its column "
        f"{counted(cause.lacking, 'time')} and in another column {counted(cause.added, 'time')}, "
        f"in {counted(cause.rows, 'row')}"
    )
