"""A plan followed on a model: each parameter's placement, and which entry makes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor

from tpcheck.errors import InvalidArgument
from tpcheck.figures.plan import Finding
from tpcheck.figures.plan_causes import (
    Contradicted,
    NothingToShard,
    OfStyle,
    StyledTwice,
    UnmatchedDeclaration,
    UnmatchedKey,
)
from tpcheck.figures.plan_reasons import UnevenSplit
from tpcheck.placement import Replicate, Shard
from tpcheck.plan import unknown_style
from tpcheck.plan.match import Match, Tree, candidates, join, match, owner_of, wrapper_on
from tpcheck.plan.plan import Plan
from tpcheck.plan.styles import Inapplicable, Style, placement_of, read
from tpcheck.vocabulary import Code


@dataclass(frozen=True)
class Placed:
    """Where an entry puts a parameter."""

    key: str
    style: Style
    placement: Shard | Replicate


@dataclass
class Promise:
    """A plan followed on a tree.

    Args:
        styles: key → its style.
        matches: key → what it matched.
        on: module → (key, style) of the entries that matched it, in the plan's order; a module
            with several names has them under each.
        styled: modules that entries matched, by the names that they matched.
        placed: parameter → where it is put; those that no entry touches are not here.
        whole, reduced: parameters that are declared so.
        tied: groups of names that are one tensor.
        findings: faults of single entries.
    """

    tree: Tree
    plan: Plan
    tp: int
    styles: dict[str, Style] = field(default_factory=dict)
    matches: dict[str, Match] = field(default_factory=dict)
    on: dict[str, list[tuple[str, Style]]] = field(default_factory=dict)
    styled: set[str] = field(default_factory=set)
    placed: dict[str, Placed] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    reduced: set[str] = field(default_factory=set)
    tied: list[tuple[str, ...]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def shards(self, name: str) -> bool:
        """Whether an entry splits the parameter."""
        placed = self.placed.get(name)
        return placed is not None and isinstance(placed.placement, Shard)


def follow(tree: Tree, plan: Plan, tp: int) -> Promise:
    """Follows `plan` on `tree`; faults of single entries become findings.

    Raises:
        InvalidArgument: a style that is none, a declaration that can't be read.
    """
    out = Promise(tree, plan, tp)
    for key, value in plan.entries.items():
        out.styles[key] = style = _style(key, value)
        out.matches[key] = matched = match(tree, key, parameters=isinstance(value, str))
        for hit in matched.hits:
            _apply(out, key, style, hit)
        if not matched.hits and not any(fnmatchcase(key, pattern) for pattern in plan.optional):
            out.findings.append(_unmatched(tree, matched))
    out.whole = _declared(out, plan.whole, "whole")
    out.reduced = _declared(out, plan.reduced, "reduced")
    out.tied = _tied(tree, plan)
    return out


def _style(key: str, value: Any) -> Style:
    try:
        return read(value)
    except InvalidArgument as error:
        raise InvalidArgument(f"plan[{key!r}]: {error}" if key else str(error)) from None


def _apply(out: Promise, key: str, style: Style, hit: str) -> None:
    """Puts a style on a module, or on a lone parameter, that a key matched."""
    if hit not in out.tree.modules:
        _place(out, key, style, hit, owner_of(hit))
        return
    others = [name for name in out.tree.same(hit) if name != hit]
    twice = next((name for name in others if name in out.styled), None)
    if twice is not None and style.split and style.object is not None:
        _misplaces(out, StyledTwice(style.name, twice), hit, key)
        return
    out.styled.add(hit)
    for name in (hit, *others):
        out.on.setdefault(name, []).append((key, style))
    if style.split == "probe":
        _apply_unknown(out, key, style, hit)
    else:
        _apply_known(out, key, style, hit)


def _apply_unknown(out: Promise, key: str, style: Style, hit: str) -> None:
    try:
        placements = unknown_style.placements(style.object, out.tree.modules[hit], out.tp)
    except Inapplicable as error:
        _misplaces(out, error.cause, hit, key)
        return
    for name, placement in placements.items():
        _put(out, join(hit, name), Placed(key, style, placement))


def _apply_known(out: Promise, key: str, style: Style, hit: str) -> None:
    names = [name for name in out.tree.parameters if owner_of(name) == hit]
    if style.keeps:
        below = f"{hit}." if hit else ""
        names = [name for name in out.tree.parameters if name.startswith(below)]
    elif style.split and not names:
        kind = type(out.tree.modules[hit]).__name__
        _misplaces(out, NothingToShard(style.name, kind), hit, key)
    for name in names:
        _place(out, key, style, name, hit)


def _place(out: Promise, key: str, style: Style, name: str, owner: str) -> None:
    module, tensor = out.tree.modules[owner], out.tree.parameters[name]
    try:
        placement = placement_of(style, module, name.rpartition(".")[2], tensor)
    except Inapplicable as error:
        _misplaces(out, error.cause, owner, key)
        return
    if placement is not None:
        _put(out, name, Placed(key, style, placement))


def _put(out: Promise, name: str, placed: Placed) -> None:
    before = out.placed.get(name)
    if before is not None and before.placement != placed.placement:
        cause = Contradicted(before.key, before.placement, placed.placement)
        _misplaces(out, cause, name, placed.key)
        return
    owner, last = owner_of(name), name.rpartition(".")[2]
    for module in out.tree.same(owner):
        out.placed[join(module, last)] = placed


def _misplaces(out: Promise, cause: OfStyle, name: str, key: str) -> None:
    out.findings.append(Finding(Code.WRONG_PLACEMENT, cause, (name,), key))


def _unmatched(tree: Tree, matched: Match) -> Finding:
    reached, rest = matched.missing[0]
    cause = UnmatchedKey(reached, rest.partition(".")[0], wrapper_on(tree, matched))
    near = candidates(tree, matched)
    return Finding(Code.PLAN_ENTRY_UNMATCHED, cause, (matched.key,), matched.key, near)


def _declared(out: Promise, patterns: tuple[str, ...], field: str) -> set[str]:
    names: set[str] = set()
    for pattern in patterns:
        matched = [n for n in out.tree.parameters if _named(out.tree, n, pattern)]
        if not matched:
            cause = UnmatchedDeclaration(field)
            finding = Finding(Code.PLAN_ENTRY_UNMATCHED, cause, (pattern,), pattern)
            out.findings.append(finding)
        names.update(matched)
    return names


def _named(tree: Tree, name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(tree.plain(name), pattern)


def _tied(tree: Tree, plan: Plan) -> list[tuple[str, ...]]:
    """Names that are one tensor: by identity, by the plan's word, by the model's configuration."""
    by_tensor: dict[int, list[str]] = {}
    for name, tensor in tree.parameters.items():
        by_tensor.setdefault(id(tensor), []).append(name)
    groups = [tuple(names) for names in by_tensor.values() if len(names) > 1]
    for group in plan.tied:
        for name in group:
            if name not in tree.parameters:
                raise InvalidArgument(
                    f"tied={group!r} names {name!r}, which is not a parameter of the model"
                )
    groups += [group for group in (*plan.tied, *_configured(tree)) if group not in groups]
    return groups


def _configured(tree: Tree) -> Iterator[tuple[str, ...]]:
    """The embedding and the head of a model whose configuration says that they are tied."""
    config = getattr(tree.model, "config", None)
    ends = [getattr(tree.model, f"get_{end}_embeddings", None) for end in ("input", "output")]
    if not getattr(config, "tie_word_embeddings", False) or None in ends:
        return
    names = {id(module): name for name, module in tree.modules.items()}
    owners = [names.get(id(end())) for end in ends]  # type: ignore[misc]
    weights = tuple(join(name, "weight") for name in owners if name is not None)
    if len(weights) == 2 and all(name in tree.parameters for name in weights):
        yield weights


def bytes_held(tensor: Tensor, placement: Shard | Replicate | None, tp: int) -> int:
    """Bytes of a parameter on the rank that holds most of it (the first, as `torch.chunk` has
    it)."""
    if not isinstance(placement, Shard) or tensor.ndim == 0:
        return tensor.numel() * tensor.element_size()
    size = tensor.shape[placement.dim]
    rows = -(-size // tp)
    return tensor.numel() // max(size, 1) * rows * tensor.element_size()


def uneven(tensor: Tensor, placement: Shard, tp: int) -> UnevenSplit | None:
    """How a split comes out where the degree does not divide the size."""
    size = tensor.shape[placement.dim]
    if size % tp == 0:
        return None
    most, least = (len(Shard(0).indices(size, tp, rank)) for rank in (0, tp - 1))
    return UnevenSplit(size, most, least)
