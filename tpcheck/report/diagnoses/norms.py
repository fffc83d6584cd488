"""The sentences of `causes.norms`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import norms as causes
from tpcheck.report.diagnoses.where import called, either
from tpcheck.vocabulary import Counted

_HOW = {
    Counted.OWN: "each rank counts its own part of {of} alone",
    Counted.COPIES: "{of} counted once for each rank that has a copy",
    Counted.NAMES: "{of} counted once for each of its names",
    Counted.ONE_RANK: "rank {rank}'s part of {of} stands for all",
    Counted.ALL_BUT_ONE: "rank {rank}'s part of {of} is left out",
    Counted.SUM_OF_RANKS: "the ranks' norms of {of} are added up{along}",
    Counted.ONE_AXIS: "{of} summed over {ranks} alone",
    Counted.SOME_RANKS: "{of} summed over {ranks} alone",
    Counted.AGAIN: "{of} summed over {ranks} once more",
    Counted.MEAN: "{of} averaged over {ranks}, not summed",
    Counted.NEVER: "{of} left out",
}


@singledispatch
def sentence(cause: causes.OfNorms) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.NormCounts) -> str:
    of = ", ".join(cause.names) or "the gradients"
    along = f" along {either(cause.axes)}" if cause.axes else ""
    ranks = f"the ranks{along}"
    if cause.group is not None:
        ranks = f"ranks {list(cause.group)} and others like them"
    how = _HOW[cause.counted].format(of=of, along=along, ranks=ranks, rank=cause.of_rank)
    where = "" if cause.on is None else f" on ranks {list(cause.on)}"
    return f"{called(cause.subject)}{where}: {how}"


@sentence.register
def _(cause: causes.NotClipped) -> str:
    ranks = list(cause.ranks)
    return f"{called(cause.subject)}: ranks {ranks} step by gradients that are not clipped"
