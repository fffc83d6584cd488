"""The sentences of `causes.microbatches`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import microbatches as causes
from tpcheck.errors import counted
from tpcheck.report.diagnoses.where import called


@singledispatch
def sentence(cause: causes.OfMicrobatches) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.FirstPassRepeated) -> str:
    times = cause.factor + 1
    return f"{called(cause.subject)}: the first microbatch is {times:g} times in the sum"


@sentence.register
def _(cause: causes.ReducedWithEach) -> str:
    return (
        f"{called(cause.subject)}: what has come together is summed over the ranks with each of "
        f"{counted(cause.of, 'microbatch', 'microbatches')}, so that the first is "
        f"{counted(cause.times, 'time')} in it"
    )


@sentence.register
def _(cause: causes.SomePassesOnly) -> str:
    passes = f"{list(cause.kept)} of {cause.of}"
    return f"{called(cause.subject)}: only the microbatches {passes} are in the sum"


@sentence.register
def _(cause: causes.OnlyFirstSummed) -> str:
    return f"{called(cause.subject)}: only the first microbatch is summed over the ranks"


@sentence.register
def _(cause: causes.PassesReordered) -> str:
    order = ", ".join(map(str, cause.order))
    what = f"what the microbatches of the {cause.side}, in the order {order}, would give"
    return f"{called(cause.subject)} is {what}"
