"""Whole parameters that see only a part of the activations, and styles that don't fit together.

A parameter that is whole on every rank, but whose activations are split (along the sequence, or
along heads), gets the gradient of this rank's part: the sum over ranks is missing, and replicas
drift apart. What a module sees follows from the styles of its neighbours:

- between a column and a row split in the same module (`q_proj … o_proj`), features are split;
- around a sequence-parallel norm, and after a row split that gives `Shard(1)`, the sequence is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from tpcheck.plan.findings import Finding, brief
from tpcheck.plan.followed import Promise
from tpcheck.plan.heads import KEY_VALUE, QUERY
from tpcheck.plan.match import join, owner_of
from tpcheck.plan.styles import Style

HEAD_NORM = re.compile(r"(^|_)(q|k|v|query|key|value)(_layer)?_?norm$|^norm_(q|k)$")

# DeepSeek's latent projections, which hold the rotary part of all heads' keys, and what is split
# into heads after them.
LATENT = {"kv_a_proj_with_mqa": {"kv_b_proj"}, "wkv_a": {"wkv_b"}}


@dataclass
class Group:
    """The split linears that belong to one module: its children, or alone in a child of it."""

    parent: str
    gives: list[str] = field(default_factory=list)  # column splits whose output stays split
    takes: list[str] = field(default_factory=list)  # row splits that take a split input


def findings(promise: Promise) -> Iterator[Finding]:
    """All faults of how the styles of a plan fit together."""
    groups = _groups(promise)
    unpaired = list(_unpaired(promise, groups))
    yield from unpaired
    yield from _uneven(promise, groups)
    yield from _embeddings(promise, groups)
    yield from _sequence_norms(promise)
    yield from _partial_gradients(promise, groups)


def block_of(name: str) -> str:
    """The repeated block that a module is in: its path up to the first number; "" for none."""
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else ""


def _linears(promise: Promise) -> Iterator[tuple[str, Style]]:
    """Split linears in the order of the model, each with the style that splits it."""
    for name, module in promise.tree.modules.items():
        for _, style in promise.on.get(name, ()):
            if style.split in ("column", "row") and not isinstance(module, nn.Embedding):
                yield name, style


def _groups(promise: Promise) -> list[Group]:
    groups: dict[str, Group] = {}
    every = [name for name in promise.tree.modules if _is_linear(promise, name)]
    below = Counter(path for name in every for path in _above(name))
    for name, style in _linears(promise):
        parent = next((path for path in _above(name) if below[path] > 1), "")
        group = groups.setdefault(parent, Group(parent))
        if style.split == "column" and style.gives == "features":
            group.gives.append(name)
        if style.split == "row" and style.takes == "features":
            group.takes.append(name)
    return [group for group in groups.values() if group.gives or group.takes]


def _above(name: str) -> Iterator[str]:
    """The modules above one, from its parent to the root."""
    while name:
        name = name.rpartition(".")[0]
        yield name


def _unpaired(promise: Promise, groups: list[Group]) -> Iterator[Finding]:
    """A split that nobody takes, or one that nobody gives.

    A module with both is paired. One with only column splits is taken by the next module if that
    has only row splits (BERT's `attention.self` and `attention.output`), or by a sibling of its
    size, wherever that is registered. One outside all blocks (a head) is the model's output.
    Beside a split by a style of one's own nothing is known.
    """
    siblings = _siblings(promise, groups)
    own = _own_styles(promise)
    groups = [g for g in groups if g.parent not in siblings and block_of(g.parent) not in own]
    lost: list[str] = []
    hungry: list[str] = []
    open_: Group | None = None
    for index, group in enumerate(groups):
        if group.gives and group.takes:
            continue
        if group.gives:
            if open_ is not None:
                lost += open_.gives
            following = groups[index + 1] if index + 1 < len(groups) else None
            if following and not following.gives and _near(group, following):
                open_ = group
            elif following and following.takes and _below(following.parent, group.parent):
                continue  # by a module within: a gated output projection, say
            elif block_of(group.parent):
                lost += group.gives
        elif open_ is not None:
            open_ = None
        else:
            hungry += group.takes
    if lost:
        message = (
            f"{brief(lost)}: split into features (Shard(-1)) that no row split takes; the "
            "projection after it must be RowwiseParallel, or its output gathered"
        )
        yield Finding("wrong-placement", message, tuple(lost), _key(promise, lost[0]))
    if hungry:
        message = (
            f"{brief(hungry)}: takes features that are split (Shard(-1)), and no column split "
            "gives them; the projection before it is whole"
        )
        yield Finding("wrong-placement", message, tuple(hungry), _key(promise, hungry[0]))


def _siblings(promise: Promise, groups: list[Group]) -> set[str]:
    """Column splits alone and row splits alone, in modules side by side, of one size."""
    out: set[str] = set()
    for i, one in enumerate(groups):
        sizes = _sizes(promise, one.gives, 0)
        if one.takes or not sizes:
            continue
        for other in (*groups[i + 1 :], *groups[:i]):  # what follows is likelier
            free = other.parent not in out and not other.gives
            if free and _beside(one, other) and sizes & _sizes(promise, other.takes, -1):
                out |= {one.parent, other.parent}
                break
    return out


def _beside(one: Group, other: Group) -> bool:
    a, b = one.parent, other.parent
    return bool(a and b) and (owner_of(a) in (owner_of(b), b) or owner_of(b) == a)


def _own_styles(promise: Promise) -> set[str]:
    """Blocks in which a style that tpcheck does not know splits a parameter."""
    return {
        block_of(owner_of(name))
        for name, placed in promise.placed.items()
        if placed.style.split == "probe" and promise.shards(name)
    }


def _near(one: Group, other: Group) -> bool:
    return block_of(one.parent) == block_of(other.parent)


def _uneven(promise: Promise, groups: list[Group]) -> Iterator[Finding]:
    """torch's row split takes a plain tensor for one of equal parts, and raises in forward where
    the column split before it gave this rank more, or less."""
    for group in groups:
        local = [s.local for m in group.gives for _, s in promise.on[m] if s.split == "column"]
        for name in group.takes if local and all(local) else ():
            objects = [s for _, s in promise.on[name] if s.split == "row" and s.object is not None]
            size = max(_sizes(promise, [name], -1), default=0)
            if objects and size % promise.tp:
                message = (
                    f"{name}: tp={promise.tp} does not divide its in_features={size}, and "
                    f"{objects[0].name} takes plain tensors for equal parts; give the column "
                    "splits before it use_local_output=False, or choose another size"
                )
                yield Finding("wrong-placement", message, (name,), _key(promise, name))


def _key(promise: Promise, module: str) -> str | None:
    found = promise.on.get(module)
    return found[-1][0] if found else None


def _embeddings(promise: Promise, groups: list[Group]) -> Iterator[Finding]:
    """Token ids are whole on every rank, and hidden states leave an embedding whole.

    An embedding beside column splits, of another width than they take, is no hidden state: a
    bias of relative positions, with a column a head, is split as they are.
    """
    widths = {g.parent: _sizes(promise, g.gives, -1) for g in groups if g.gives}
    for name, found in promise.on.items():
        if not isinstance(promise.tree.modules[name], nn.Embedding):
            continue
        for key, style in found:
            if style.takes == "features":
                message = (
                    f"{name}: {style.name} takes the token ids for one rank's part and gathers "
                    "them; give input_layouts=Replicate()"
                )
                yield Finding("wrong-placement", message, (name,), key)
            beside = widths.get(owner_of(name))
            inner = beside is not None and not beside & _sizes(promise, [name], -1)
            if style.gives == "features" and style.local and not inner:
                message = (
                    f"{name}: {style.name} gives each rank a part of the hidden state; give "
                    "output_layouts=Replicate()"
                )
                yield Finding("wrong-placement", message, (name,), key)


def _sequence_norms(promise: Promise) -> Iterator[Finding]:
    """A sequence-parallel module takes a plain tensor for its own part of the sequence, so what
    comes to it must be split already, or be a DTensor that says that it is not."""
    by_block: dict[str, list[tuple[str, Style]]] = {}
    for name, found in promise.on.items():
        for _, style in found:
            by_block.setdefault(block_of(name), []).append((name, style))
    for styles in by_block.values():
        norms = [name for name, style in styles if style.keeps and style.takes == "sequence"]
        whole = [n for n, s in styles if s.split == "row" and s.gives == "whole" and s.local]
        whole = [n for n in whole if not isinstance(promise.tree.modules[n], nn.Embedding)]
        if norms and whole:
            message = (
                f"{brief(norms)}: SequenceParallel takes the whole output of {brief(whole)} for "
                "one rank's part of the sequence; give those output_layouts=Shard(1)"
            )
            yield Finding("wrong-placement", message, (*norms, *whole), _key(promise, norms[0]))


def _partial_gradients(promise: Promise, groups: list[Group]) -> Iterator[Finding]:
    """Whole parameters, touched by no entry, whose activations are split."""
    tree = promise.tree
    on_heads: list[str] = []
    on_sequence: list[str] = []
    sequences = _sequence_blocks(promise)
    for name in tree.parameters:
        if name in promise.placed or name in promise.reduced:
            continue
        owner = owner_of(name)
        inside = next((g for g in groups if g.takes and _below(owner, g.parent)), None)
        beside = next((g for g in groups if g.gives and owner_of(owner) == g.parent), None)
        between = inside is not None and _sees_features(promise, name, inside)
        if between or (beside is not None and _sees_heads(promise, name, beside)):
            on_heads.append(name)
        elif inside is None and _sees_sequence(promise, owner, sequences):
            on_sequence.append(name)
    if on_heads:
        message = (
            f"{brief(on_heads)}: whole on every rank, between splits by features: the gradient is "
            "that of this rank's features (its heads) only; sum it over the ranks "
            "(replicated_with_grad_allreduce, SequenceParallel over the heads' dim), or declare "
            "reduced=(…) where the framework does"
        )
        yield Finding("wrong-placement", message, tuple(on_heads))
    if on_sequence:
        message = (
            f"{brief(on_sequence)}: whole on every rank, on activations split along the sequence: "
            "the gradient is that of this rank's tokens only; put SequenceParallel() on it, or "
            "declare reduced=(…) where the framework sums it"
        )
        yield Finding("wrong-placement", message, tuple(on_sequence))


def _below(name: str, parent: str) -> bool:
    return bool(parent) and (name == parent or name.startswith(f"{parent}."))


def _sees_features(promise: Promise, name: str, group: Group) -> bool:
    """Whether a parameter beside split linears works on what they split: a norm of q or k by its
    name, any other vector by its size, which is not that of what comes in or goes out."""
    tree = promise.tree
    tensor, owner = tree.parameters[name], owner_of(name)
    direct = owner.rpartition(".")[0] == group.parent or owner == group.parent
    if tensor.ndim > 1 or not direct or _is_linear(promise, owner):
        return False
    if tensor.numel() == 1 and owner == group.parent:
        return False  # it may as well scale what comes in or goes out
    if HEAD_NORM.search(owner.rpartition(".")[2]):
        return True
    # a linear that is whole has both of its ends outside the split
    beside = [join(group.parent, child) for child in tree.children[group.parent]]
    inner = {*group.gives, *group.takes}
    whole = [m for m in beside if m not in inner and _is_linear(promise, m)]
    outside = {getattr(tree.modules[m], "in_features", None) for m in (*group.gives, *whole)}
    outside |= {getattr(tree.modules[m], "out_features", None) for m in (*group.takes, *whole)}
    return tensor.numel() not in outside


def _sees_heads(promise: Promise, name: str, group: Group) -> bool:
    """Whether a projection that is declared whole makes keys or values for split queries."""
    owner = owner_of(name)
    last, others = owner.rpartition(".")[2], {m.rpartition(".")[2] for m in group.gives}
    if name not in promise.whole or promise.on.get(owner):
        return False
    return (last in KEY_VALUE and bool(others & QUERY)) or (
        last in LATENT and bool(others & LATENT[last])
    )


def _sizes(promise: Promise, modules: list[str], dim: int) -> set[int]:
    """The sizes of some modules' weights along a dim."""
    found = (promise.tree.parameters.get(join(module, "weight")) for module in modules)
    return {weight.shape[dim] for weight in found if weight is not None and weight.ndim > 1}


def _is_linear(promise: Promise, owner: str) -> bool:
    weight = promise.tree.modules[owner]._parameters.get("weight")
    return weight is not None and weight.ndim > 1


def _sequence_blocks(promise: Promise) -> set[str]:
    """Blocks whose activations are split along the sequence; "" is what lies outside them."""
    blocks = {
        block_of(name)
        for name, found in promise.on.items()
        for _, style in found
        if "sequence" in (style.gives, style.takes)
    }
    return blocks | {""} if blocks else blocks


def _sees_sequence(promise: Promise, owner: str, blocks: set[str]) -> bool:
    module = promise.tree.modules[owner]
    if block_of(owner) not in blocks or isinstance(module, nn.Embedding):
        return False
    path = ""
    for part in ("", *owner.split(".")):
        path = join(path, part)
        if any(style.prepares == "whole" for _, style in promise.on.get(path, ())):
            return False  # its input is gathered first
    return True
