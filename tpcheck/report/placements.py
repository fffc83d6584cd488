"""Where a parameter is placed and why, in words."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.figures import plan_reasons as reasons
from tpcheck.figures.plan_causes import Place
from tpcheck.placement import Shard
from tpcheck.report.names import brief


def placed(place: Place) -> str:
    """`Shard(0)` or `Replicate()`, as DTensor writes it; `whole` for a plain tensor."""
    if place is None:
        return "whole"
    return f"Shard({place.dim})" if isinstance(place, Shard) else "Replicate()"


@singledispatch
def reason(why: reasons.Reason) -> str:
    """`rowwise ('layers.*.o_proj')`, `no entry names it`."""
    raise TypeError(f"{type(why).__name__} has no words")


@reason.register
def _(why: reasons.ShardedBy) -> str:
    uneven = why.uneven
    if uneven is None:
        return f"{why.style} ({why.key!r})"
    return (
        f"{why.style} ({why.key!r}), uneven: {uneven.most} of {uneven.size} on the first rank, "
        f"{uneven.least} on the last"
    )


@reason.register
def _(why: reasons.KeptBy) -> str:
    return f"kept replicated by {why.style} ({why.key!r})"


@reason.register
def _(why: reasons.BiasAfterSum) -> str:
    return f"bias of a row split, added once after the sum ({why.key!r})"


@reason.register
def _(why: reasons.Declared) -> str:
    return f"declared {why.field}"


@reason.register
def _(why: reasons.ShardsNothing) -> str:
    return f"{why.style} ({why.key!r}) shards nothing"


@reason.register
def _(why: reasons.LeftOut) -> str:
    one = len(why.siblings) == 1
    return (
        f"left out, while {brief(why.siblings)} of the same kind {'is' if one else 'are'} sharded"
    )


@reason.register
def _(why: reasons.Unnamed) -> str:
    meant = f" ({why.meant!r} matches nothing)" if why.meant else ""
    return f"no entry names it{meant}"
