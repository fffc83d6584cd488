"""What a plan promises on a model: each parameter's placement, and which entry makes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from torch import Tensor

from tpcheck.errors import InvalidArgument
from tpcheck.placement import Replicate, Shard
from tpcheck.plan import unknown_style
from tpcheck.plan.findings import Finding
from tpcheck.plan.match import Match, Tree, candidates, join, match, owner_of, wrapper_on
from tpcheck.plan.plan import Plan
from tpcheck.plan.styles import Inapplicable, Style, placement_of, read


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
        found = self.placed.get(name)
        return found is not None and isinstance(found.placement, Shard)


def promise(tree: Tree, plan: Plan, tp: int) -> Promise:
    """Follows `plan` on `tree`; faults of single entries become findings.

    Raises:
        InvalidArgument: a style that is none, a declaration that can't be read.
    """
    out = Promise(tree, plan, tp)
    for key, given in plan.entries.items():
        style = read(given)
        out.styles[key] = style
        found = match(tree, key, parameters=isinstance(given, str))
        out.matches[key] = found
        for hit in found.hits:
            _apply(out, key, style, hit)
        if not found.hits and not any(fnmatchcase(key, pattern) for pattern in plan.optional):
            out.findings.append(_unmatched(tree, found))
    out.whole = _declared(out, plan.whole, "whole")
    out.reduced = _declared(out, plan.reduced, "reduced")
    out.tied = _tied(tree, plan)
    return out


def _apply(out: Promise, key: str, style: Style, hit: str) -> None:
    tree = out.tree
    if hit not in tree.modules:
        owner = owner_of(hit)
        _place(out, key, style, hit, owner)
        return
    others = [name for name in tree.same(hit) if name != hit]
    twice = next((name for name in others if name in out.styled), None)
    if twice is not None and style.split and style.object is not None:
        message = (
            f"{key!r} puts {style.name} on {hit}, which is the same module as {twice}, and that "
            "has a style: hooks would run twice; name the module once"
        )
        out.findings.append(Finding("wrong-placement", message, (hit,), key))
        return
    out.styled.add(hit)
    for name in (hit, *others):
        out.on.setdefault(name, []).append((key, style))
    if style.split == "probe":
        try:
            found = unknown_style.placements(style.object, tree.modules[hit], out.tp)
        except Inapplicable as error:
            _inapplicable(out, key, hit, error)
            return
        for name, placement in found.items():
            _put(out, join(hit, name), Placed(key, style, placement))
        return
    owned = [name for name in tree.parameters if owner_of(name) == hit]
    if style.keeps:
        below = f"{hit}." if hit else ""
        owned = [name for name in tree.parameters if name.startswith(below)]
    elif style.split and not owned:
        kind = type(tree.modules[hit]).__name__
        message = f"{key!r} puts {style.name} on {hit} ({kind}), which has no parameters of its own"
        out.findings.append(Finding("wrong-placement", message, (hit,), key))
    for name in owned:
        _place(out, key, style, name, hit)


def _place(out: Promise, key: str, style: Style, name: str, owner: str) -> None:
    module, tensor = out.tree.modules[owner], out.tree.parameters[name]
    try:
        placement = placement_of(style, module, name.rpartition(".")[2], tensor)
    except Inapplicable as error:
        _inapplicable(out, key, owner, error)
        return
    if placement is not None:
        _put(out, name, Placed(key, style, placement))


def _inapplicable(out: Promise, key: str, module: str, error: Inapplicable) -> None:
    where = f" at {module}" if module else ""
    out.findings.append(Finding("wrong-placement", f"{key!r}{where}: {error}", (module,), key))


def _put(out: Promise, name: str, placed: Placed) -> None:
    before = out.placed.get(name)
    if before is not None and before.placement != placed.placement:
        message = (
            f"{name}: {before.key!r} says {text(before.placement)}, "
            f"{placed.key!r} says {text(placed.placement)}"
        )
        out.findings.append(Finding("wrong-placement", message, (name,), placed.key))
        return
    owner, own = owner_of(name), name.rpartition(".")[2]
    for module in out.tree.same(owner):
        out.placed[join(module, own)] = placed


def text(placement: Shard | Replicate) -> str:
    """`Shard(0)`, as DTensor writes it."""
    return f"Shard({placement.dim})" if isinstance(placement, Shard) else "Replicate()"


def _unmatched(tree: Tree, found: Match) -> Finding:
    near = candidates(tree, found)
    path, rest = found.missing[0]
    where = path or "the model's root"
    message = f"{found.key!r} matches no module: {where} has no {rest.partition('.')[0]!r}"
    wrapper = wrapper_on(tree, found)
    if wrapper:
        message += f" (it is behind {wrapper}; apply the plan first)"
    if near:
        message += f"; there is {', '.join(near)}"
    return Finding("plan-entry-unmatched", message, (found.key,), found.key, near)


def _declared(out: Promise, patterns: tuple[str, ...], what: str) -> set[str]:
    names: set[str] = set()
    for pattern in patterns:
        found = [n for n in out.tree.parameters if _named(out.tree, n, pattern)]
        if not found:
            message = f"{what}={pattern!r} is declared, and matches no parameter"
            out.findings.append(Finding("plan-entry-unmatched", message, (pattern,), pattern))
        names.update(found)
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
                    f"tied={group!r} names {name!r}, which is no parameter of the model"
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
    found = [names.get(id(end())) for end in ends]  # type: ignore[misc]
    weights = tuple(join(name, "weight") for name in found if name is not None)
    if len(weights) == 2 and all(name in tree.parameters for name in weights):
        yield weights


def bytes_held(tensor: Tensor, placement: Shard | Replicate | None, tp: int) -> int:
    """Bytes of a parameter on the rank that holds most of it (the first: `torch.chunk` cuts)."""
    if not isinstance(placement, Shard) or tensor.ndim == 0:
        return tensor.numel() * tensor.element_size()
    size = tensor.shape[placement.dim]
    rows = -(-size // tp)
    return tensor.numel() // max(size, 1) * rows * tensor.element_size()


def uneven(tensor: Tensor, placement: Shard | Replicate, tp: int) -> str:
    """How a split comes out where the degree does not divide the size; else nothing."""
    if not isinstance(placement, Shard) or tensor.shape[placement.dim] % tp == 0:
        return ""
    size = tensor.shape[placement.dim]
    most, least = (len(Shard(0).indices(size, tp, rank)) for rank in (0, tp - 1))
    return f", uneven: {most} of {size} on the first rank, {least} on the last"
