"""Styles that don't fit together: what one module gives is not what the next one takes."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from tpcheck.figures.plan import Finding
from tpcheck.figures.plan_causes import GathersTokenIds, ShardsHiddenStates, WholeIntoSequence
from tpcheck.plan import pairs, partial
from tpcheck.plan.followed import Promise
from tpcheck.plan.groups import Group, block_of, groups_of, key_of, sizes
from tpcheck.plan.match import owner_of
from tpcheck.plan.styles import Style
from tpcheck.vocabulary import Code


def findings(promise: Promise) -> Iterator[Finding]:
    """All faults of how the styles of a plan fit together."""
    groups = groups_of(promise)
    yield from pairs.unpaired(promise, groups)
    yield from pairs.uneven(promise, groups)
    yield from _embeddings(promise, groups)
    yield from _sequence_norms(promise)
    yield from partial.findings(promise, groups)


def _embeddings(promise: Promise, groups: list[Group]) -> Iterator[Finding]:
    """Token ids are replicated, and hidden states leave an embedding whole."""
    for name, styles in promise.on.items():
        if not isinstance(promise.tree.modules[name], nn.Embedding):
            continue
        for key, style in styles:
            if style.takes == "features":
                cause = GathersTokenIds(style.name)
                yield Finding(Code.WRONG_PLACEMENT, cause, (name,), key)
            if style.gives == "features" and style.local and not _is_inner(promise, name, groups):
                leaves = ShardsHiddenStates(style.name)
                yield Finding(Code.WRONG_PLACEMENT, leaves, (name,), key)


def _is_inner(promise: Promise, embedding: str, groups: list[Group]) -> bool:
    """Whether an embedding gives no hidden states. One beside column splits, of another width than
    they take, is a bias of relative positions, with a column per head: split as they are."""
    widths = {g.parent: sizes(promise, g.gives, -1) for g in groups if g.gives}
    beside = widths.get(owner_of(embedding))
    return beside is not None and not beside & sizes(promise, [embedding], -1)


def _sequence_norms(promise: Promise) -> Iterator[Finding]:
    """A sequence-parallel module takes a plain tensor for its own part of the sequence, so what
    comes to it must be sharded already, or be a DTensor that says that it is not."""
    by_block: dict[str, list[tuple[str, Style]]] = {}
    for name, styles in promise.on.items():
        by_block.setdefault(block_of(name), []).extend((name, style) for _, style in styles)
    for block in by_block.values():
        norms = [name for name, style in block if style.keeps and style.takes == "sequence"]
        rows = [n for n, s in block if s.split == "row" and s.gives == "whole" and s.local]
        rows = [n for n in rows if not isinstance(promise.tree.modules[n], nn.Embedding)]
        if norms and rows:
            cause = WholeIntoSequence(tuple(norms), tuple(rows))
            key = key_of(promise, norms[0])
            yield Finding(Code.WRONG_PLACEMENT, cause, (*norms, *rows), key)
