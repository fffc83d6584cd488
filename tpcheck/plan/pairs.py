"""Column splits and the row splits that consume their features: each needs the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from tpcheck.figures.plan import Finding
from tpcheck.figures.plan_causes import Unconsumed, UnevenInput, Unfed
from tpcheck.plan.followed import Promise
from tpcheck.plan.groups import Group, block_of, is_below, key_of, sizes
from tpcheck.plan.heads import FIRST, KEY_VALUE, LAST, OUT, QUERY
from tpcheck.plan.match import owner_of
from tpcheck.vocabulary import Code


def unpaired(promise: Promise, groups: list[Group]) -> Iterator[Finding]:
    """A column split without a row split that consumes it, or the reverse.

    A module with both is paired. One with only column splits is consumed by the next module if
    that has only row splits (BERT's `attention.self` and `attention.output`), or by a sibling of
    its size, wherever that is registered. One outside all blocks (a head) is the model's output,
    unless it makes queries, keys or values, or a linear beside it takes what it gives. Beside a
    split by a style of one's own nothing is known.
    """
    siblings = _siblings(promise, groups)
    unknown = _unknown_blocks(promise)
    known = [g for g in groups if block_of(g.parent) not in unknown]
    unconsumed, unfed = _alone(promise, [g for g in known if g.parent not in siblings])
    unfed += [name for group in known for name in _unlike_their_siblings(promise, group)]
    for cause, names in ((Unconsumed(), unconsumed), (Unfed(), unfed)):
        if names:
            key = key_of(promise, names[0])
            yield Finding(Code.WRONG_PLACEMENT, cause, tuple(names), key)


def _alone(promise: Promise, groups: list[Group]) -> tuple[list[str], list[str]]:
    """Column splits that no row split consumes, and row splits that no column split feeds."""
    unconsumed: list[str] = []
    unfed: list[str] = []
    waiting: Group | None = None  # for the row splits of the group after it
    for group, after in zip_longest(groups, groups[1:]):
        if group.gives and group.takes:
            gives, takes = _exchanged(group)
            unconsumed += gives or _untaken(promise, group)
            unfed += takes
            continue
        if group.gives:
            unconsumed += waiting.gives if waiting else ()
            if after and not after.gives and block_of(group.parent) == block_of(after.parent):
                waiting = group
            elif after and after.takes and is_below(after.parent, group.parent):
                continue  # by a module within: a gated output projection, say
            elif block_of(group.parent) or _is_inner(promise, group):
                unconsumed += group.gives
        elif waiting:
            waiting = None
        else:
            unfed += group.takes
    return unconsumed, unfed


def _exchanged(group: Group) -> tuple[list[str], list[str]]:
    """Column splits of what a module calls last, and row splits of what it calls first, by their
    names: the two styles stand in each other's place."""
    gives = [name for name in group.gives if _last(name) in LAST]
    takes = [name for name in group.takes if _last(name) in FIRST]
    return (gives, takes) if gives and takes else ([], [])


def _is_inner(promise: Promise, group: Group) -> bool:
    """Whether column splits are not a model's output: they make what attention takes, or features
    of a size that another linear beside them takes whole."""
    if _are_heads(group.gives):
        return True
    given = [_shape(promise, name) for name in group.gives]
    taken = {_shape(promise, name)[1] for name in group.linears}
    return any(out != size and out in taken for out, size in given)


def _untaken(promise: Promise, group: Group) -> list[str]:
    """Column splits of a module in which row splits take others' features: those of a size that
    only linears take which are not row splits; heads, where what takes them by its name is one."""
    taken = {_shape(promise, name)[1] for name in group.takes}
    others = {_shape(promise, name)[1] for name in group.linears if name not in group.takes}
    shapes = {name: _shape(promise, name) for name in group.gives}
    left = {out for out, size in shapes.values() if out != size and out in others - taken}
    attention = [name for name in group.gives if _last(name) in QUERY | KEY_VALUE | OUT]
    split = _are_heads(attention) and any(_last(name) in OUT for name in attention)
    return [n for n, (out, _) in shapes.items() if out in left or (split and n in attention)]


def _unlike_their_siblings(promise: Promise, group: Group) -> list[str]:
    """Row splits that stand beside column splits where the module calls both: queries, keys and
    values, by their names; linears of one shape, of which nothing gives what they take."""
    given = [_shape(promise, name) for name in group.gives]
    taken = [shape for shape in (_shape(promise, n) for n in group.takes) if shape not in given]
    fed = {out for out, _ in given} - {size for _, size in taken}  # what none else takes
    out = []
    for name in group.takes:
        shape = _shape(promise, name)
        twin = shape in given and shape[0] != shape[1] and shape[1] not in fed
        if twin or (_last(name) in QUERY | KEY_VALUE and _are_heads([*group.gives, name])):
            out.append(name)
    return out


def _are_heads(modules: list[str]) -> bool:
    """Whether some of them make queries, and some keys or values, by their names."""
    names = {_last(name) for name in modules}
    return bool(names & QUERY) and bool(names & KEY_VALUE)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _shape(promise: Promise, module: str) -> tuple[int, int]:
    """What a linear gives, and what it takes."""
    weight = promise.tree.modules[module]._parameters["weight"]
    assert weight is not None, "it is split"
    return weight.shape[0], weight.shape[-1]


def _siblings(promise: Promise, groups: list[Group]) -> set[str]:
    """Column splits alone and row splits alone, in modules side by side, of one size."""
    out: set[str] = set()
    for i, one in enumerate(groups):
        widths = sizes(promise, one.gives, 0)
        if one.takes or not widths:
            continue
        for other in (*groups[i + 1 :], *groups[:i]):  # what follows is likelier
            free = other.parent not in out and not other.gives
            if free and _beside(one, other) and widths & sizes(promise, other.takes, -1):
                out |= {one.parent, other.parent}
                break
    return out


def _beside(one: Group, other: Group) -> bool:
    a, b = one.parent, other.parent
    return bool(a and b) and (owner_of(a) in (owner_of(b), b) or owner_of(b) == a)


def _unknown_blocks(promise: Promise) -> set[str]:
    """Blocks in which a style that tpcheck does not know splits a parameter."""
    return {
        block_of(owner_of(name))
        for name, placed in promise.placed.items()
        if placed.style.split == "probe" and promise.shards(name)
    }


def uneven(promise: Promise, groups: list[Group]) -> Iterator[Finding]:
    """torch's row split takes a plain tensor for one of equal parts, and raises in forward where
    the column split before it gave this rank more, or less."""
    for group in groups:
        local = [s.local for m in group.gives for _, s in promise.on[m] if s.split == "column"]
        for name in group.takes if local and all(local) else ():
            styles = [s for _, s in promise.on[name] if s.split == "row" and s.object is not None]
            size = max(sizes(promise, [name], -1), default=0)
            if styles and size % promise.tp:
                cause = UnevenInput(promise.tp, size, styles[0].name)
                yield Finding(Code.WRONG_PLACEMENT, cause, (name,), key_of(promise, name))
