"""Parameters of which every rank holds the whole, and why each does."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from tpcheck.figures.plan import Finding
from tpcheck.figures.plan_causes import NotSharded
from tpcheck.figures.plan_reasons import (
    BiasAfterSum,
    Declared,
    KeptBy,
    LeftOut,
    Reason,
    ShardsNothing,
    Unnamed,
)
from tpcheck.placement import Shard
from tpcheck.plan.followed import Promise
from tpcheck.plan.match import candidates, owner_of
from tpcheck.tensors.names import generic
from tpcheck.vocabulary import Code


def undeclared(promise: Promise, explained: Collection[str]) -> Iterator[Finding]:
    """Parameters that stay whole and are not declared, by kind and reason.

    Args:
        explained: modules and parameters that another finding is about.
    """
    kinds: dict[tuple[str, Reason], list[str]] = {}
    for name in promise.tree.parameters:
        if is_open(promise, name) and name not in explained and owner_of(name) not in explained:
            kinds.setdefault((generic(name), why_whole(promise, name)), []).append(name)
    for (_, why), names in kinds.items():
        yield Finding(Code.PARAMETER_NOT_SHARDED, NotSharded(why), tuple(names))


def is_open(promise: Promise, name: str) -> bool:
    """Whether a parameter is whole though nothing says that it should be."""
    if name in promise.placed or name in promise.whole or name in promise.reduced:
        return False
    return not isinstance(promise.tree.placement(name), Shard)


def why_whole(promise: Promise, name: str) -> Reason:
    """Why no rank holds less than the whole parameter."""
    placed = promise.placed.get(name)
    if placed is not None:
        keeps = placed.style.keeps
        return KeptBy(placed.style.name, placed.key) if keeps else BiasAfterSum(placed.key)
    for field, names in (("whole", promise.whole), ("reduced", promise.reduced)):
        if name in names:
            return Declared(field)
    idle, siblings = _idle(promise, owner_of(name)), _siblings(promise, name)
    unnamed = Unnamed(_meant(promise, owner_of(name)))
    return idle or (LeftOut(siblings) if siblings else unnamed)


def _idle(promise: Promise, path: str) -> ShardsNothing | None:
    """A style that shards nothing, on a module or on the nearest one above that has such."""
    while True:
        for key, style in promise.on.get(path, ()):
            if not style.split:
                return ShardsNothing(style.name, key)
        if not path:
            return None
        path = owner_of(path)


def _siblings(promise: Promise, name: str) -> tuple[str, ...]:
    """Parameters of the same pattern that an entry does shard."""
    pattern = re.compile(re.escape(generic(name)).replace(r"\*", r"\d+"))
    return tuple(n for n in promise.placed if pattern.fullmatch(n) and promise.shards(n))


def _meant(promise: Promise, owner: str) -> str | None:
    """An entry that matches nothing and may mean the module."""
    for key, matched in promise.matches.items():
        if not matched.hits and generic(owner) in candidates(promise.tree, matched):
            return key
    return None
