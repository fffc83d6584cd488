"""The sentences of `causes.tensor`."""

from __future__ import annotations

import math
from functools import singledispatch

from tpcheck.causes import tensor as causes
from tpcheck.errors import counted
from tpcheck.report.diagnoses.where import called
from tpcheck.vocabulary import Kind, Phase


@singledispatch
def sentence(cause: causes.OfTensor) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.AllZero) -> str:
    what = f"{called(cause.subject)} is zero on ranks {list(cause.ranks)}"
    if cause.subject.kind is Kind.OUTPUT:
        return f"{what}: a buffer that nothing was written to"
    return f"{what}: rows of tokens that were looked up" if cause.looked_up else what


@sentence.register
def _(cause: causes.Scaled) -> str:
    factor = "world_size" if cause.world else f"{cause.factor:g}"
    what = f"{called(cause.subject)}: every element is {factor} × the reference"
    if cause.microbatches is None:
        return what
    return f"{what}, which has {counted(cause.microbatches, 'microbatch', 'microbatches')}"


@sentence.register
def _(cause: causes.Unsummed) -> str:
    kind, ranks = cause.subject.kind, list(cause.ranks)
    of_parameter = kind in (Kind.PARAM_GRAD, Kind.PARAM)
    why = "its gradient needs a sum over them" if of_parameter else "an all-reduce is missing"
    phase = Phase.FORWARD if kind.is_output else Phase.BACKWARD
    what = f"{called(cause.subject)}: summed over ranks {ranks} it equals the reference"
    return f"{what}: {why} ({phase})"


@sentence.register
def _(cause: causes.LargestNotShared) -> str:
    what, ranks = called(cause.subject), list(cause.ranks)
    return f"{what}: the largest over ranks {ranks} is the reference: each has that of its own part"


@sentence.register
def _(cause: causes.Unaveraged) -> str:
    what = (
        f"{called(cause.subject)}: averaged over ranks {list(cause.ranks)} it equals the reference"
    )
    return f"{what}: each has the mean of its own part"


@sentence.register
def _(cause: causes.PartsExchanged) -> str:
    pairs = ", ".join(f"rank {rank} has rank {other}'s" for rank, other in cause.map.items())
    return f"{called(cause.subject)}: {pairs} part"


@sentence.register
def _(cause: causes.BiasRepeated) -> str:
    return (
        f"{called(cause.subject)} is off by {cause.factor:+.3g} × {cause.bias} on rank "
        f"{cause.rank}: the bias must be added once, after the sum"
    )


@sentence.register
def _(cause: causes.ScaledOnSomeRanks) -> str:
    ranks = list(cause.ranks)
    return f"{called(cause.subject)} is scaled on ranks {ranks} and right on the others"


@sentence.register
def _(cause: causes.LowPrecision) -> str:
    error = cause.relative_error
    how = f"to {-math.log2(error):.1f} bits" if 0 < error < math.inf else f"but for {error:g}"
    return (
        f"{called(cause.subject)} agrees {how}, and every value is representable in {cause.dtype}"
    )


@sentence.register
def _(cause: causes.PiecesSummed) -> str:
    return (
        f"{called(cause.subject)} of rank {cause.rank} is the sum of all ranks' different pieces: "
        "reduced although sharded, or over too large a group"
    )


@sentence.register
def _(cause: causes.WrongInLaterPass) -> str:
    what = called(cause.subject)
    return f"{what} is wrong and the first pass is right: something old is reused"
