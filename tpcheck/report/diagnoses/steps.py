"""The sentences of `causes.steps`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import steps as causes
from tpcheck.report.diagnoses.where import called


@singledispatch
def sentence(cause: causes.OfSteps) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.NotStepped) -> str:
    where = f"on ranks {list(cause.ranks)} " if cause.others else ""
    if cause.buffer:
        return f"{called(cause.subject)} is {where}what was loaded: no forward has updated it"
    return f"{called(cause.subject)} is {where}what it was before the step"


@sentence.register
def _(cause: causes.FrozenMoves) -> str:
    what = f"{called(cause.subject)} takes no gradient, and the reference's steps leave it"
    return f"{what} as it is: those on ranks {list(cause.ranks)} change it"


@sentence.register
def _(cause: causes.BeginsAnew) -> str:
    where = f"on ranks {list(cause.ranks)} " if cause.others else ""
    return f"{called(cause.subject)} is {where}what a first step would leave: earlier ones are lost"


@sentence.register
def _(cause: causes.GradientOfOwnPart) -> str:
    gradient = "the gradient of its own part" + ("" if cause.clipped else ", which is not clipped")
    what = f"{called(cause.subject)}: summed over ranks {list(cause.ranks)} the update is right"
    return f"{what}: each steps by {gradient}"


@sentence.register
def _(cause: causes.NotZeroed) -> str:
    return f"{called(cause.subject)} has the gradient of the step before in it"


@sentence.register
def _(cause: causes.UpdateScaled) -> str:
    each = {f"{factor:.4g}" for factor in cause.factors.values()}
    if len(each) == 1:
        ranks = list(cause.factors)
        return (
            f"{called(cause.subject)} changes by {each.pop():s} times the update on ranks {ranks}"
        )
    own = ", ".join(f"{factor:.4g} on rank {rank}" for rank, factor in cause.factors.items())
    return f"{called(cause.subject)} changes by a factor of each rank's own times the update: {own}"


@sentence.register
def _(cause: causes.OverflowNotShared) -> str:
    return (
        f"{called(cause.subject)}: ranks {list(cause.ranks)} take the step that ranks "
        f"{list(cause.owners)} leave out, who alone have an infinite gradient of {cause.gradient}: "
        "that there is one was not reduced over the ranks"
    )


@sentence.register
def _(cause: causes.OverflowIgnored) -> str:
    changes = "changes on all ranks in"
    if cause.ranks:
        changes = f"is not finite on ranks {list(cause.ranks)} after"
    return (
        f"{called(cause.subject)} {changes} a step that is to be left out, since a gradient of "
        f"{cause.gradient} is infinite"
    )


@sentence.register
def _(cause: causes.NoState) -> str:
    return f"{called(cause.subject)}: the optimizer keeps none of it on rank {cause.rank}"
