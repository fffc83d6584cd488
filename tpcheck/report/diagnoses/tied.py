"""The sentences of `causes.tied`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import tied as causes
from tpcheck.report.diagnoses.where import called


@singledispatch
def sentence(cause: causes.OfTied) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.TiedUnsummed) -> str:
    return f"{' and '.join(cause.names)} are one tensor: its gradient is the sum of theirs"


@sentence.register
def _(cause: causes.TiedSummedOverAxis) -> str:
    names = " and ".join(cause.names)
    return f"{names} are one tensor, whose gradient is summed over {cause.axis}, not over them"


@sentence.register
def _(cause: causes.TiedSplit) -> str:
    names = " and ".join(cause.names)
    return f"{names} are one tensor in the reference, and here each has its own use's gradient"


@sentence.register
def _(cause: causes.UsesOfTied) -> str:
    uses = ", ".join(f"{times:g} × as {name}" for name, times in cause.times.items())
    return f"{called(cause.subject)} does not have each use of the tensor once: {uses}"
