"""Replicated parameters that see only a part of the activations.

Such a parameter gets the gradient of this rank's part: the sum over ranks is missing, and replicas
drift apart. What a module sees follows from the styles of its neighbours:

- between a column and a row split in the same module (`q_proj … o_proj`), features are sharded;
- around a sequence-parallel norm, and after a row split that gives `Shard(1)`, the sequence is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import nn

from tpcheck.figures.plan import Finding
from tpcheck.figures.plan_causes import PartialOverFeatures, PartialOverSequence
from tpcheck.plan.followed import Promise
from tpcheck.plan.groups import Group, block_of, is_below, is_linear
from tpcheck.plan.heads import KEY_VALUE, QUERY
from tpcheck.plan.match import join, owner_of
from tpcheck.vocabulary import Code

HEAD_NORM = re.compile(r"(^|_)(q|k|v|query|key|value)(_layer)?_?norm$|^norm_(q|k)$")

# DeepSeek's latent projections, which hold the rotary part of all heads' keys, and what is split
# into heads after them.
LATENT = {"kv_a_proj_with_mqa": {"kv_b_proj"}, "wkv_a": {"wkv_b"}}


def findings(promise: Promise, groups: list[Group]) -> Iterator[Finding]:
    """Replicated parameters, touched by no entry, whose activations are sharded."""
    on_features: list[str] = []
    on_sequence: list[str] = []
    blocks = _sequence_blocks(promise)
    for name in promise.tree.parameters:
        if name in promise.placed or name in promise.reduced:
            continue
        owner = owner_of(name)
        inside = next((g for g in groups if g.takes and is_below(owner, g.parent)), None)
        if _on_features(promise, name, inside, groups):
            on_features.append(name)
        elif inside is None and _sees_sequence(promise, owner, blocks):
            on_sequence.append(name)
    if on_features:
        yield Finding(Code.WRONG_PLACEMENT, PartialOverFeatures(), tuple(on_features))
    if on_sequence:
        yield Finding(Code.WRONG_PLACEMENT, PartialOverSequence(), tuple(on_sequence))


def _on_features(promise: Promise, name: str, inside: Group | None, groups: list[Group]) -> bool:
    """Whether a parameter works on features (heads) of which this rank has a part.

    Args:
        inside: the group with row splits that the parameter is in.
    """
    if inside is not None and _sees_features(promise, name, inside):
        return True
    above = owner_of(owner_of(name))
    beside = next((g for g in groups if g.gives and above == g.parent), None)
    return beside is not None and _sees_heads(promise, name, beside)


def _sees_features(promise: Promise, name: str, group: Group) -> bool:
    """Whether a parameter beside split linears works on what they split: a norm of q or k by its
    name, any other vector by its size, which is not that of what comes in or goes out."""
    tree = promise.tree
    tensor, owner = tree.parameters[name], owner_of(name)
    direct = owner_of(owner) == group.parent or owner == group.parent
    if tensor.ndim > 1 or not direct or is_linear(promise, owner):
        return False
    if tensor.numel() == 1 and owner == group.parent:
        return False  # it may as well scale what comes in or goes out
    if HEAD_NORM.search(owner.rpartition(".")[2]):
        return True
    # a linear that is replicated has both of its ends outside the split
    beside = [join(group.parent, child) for child in tree.children[group.parent]]
    inner = {*group.gives, *group.takes}
    whole = [m for m in beside if m not in inner and is_linear(promise, m)]
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


def _sequence_blocks(promise: Promise) -> set[str]:
    """Blocks whose activations are sharded along the sequence; "" is what is outside them."""
    blocks = {
        block_of(name)
        for name, styles in promise.on.items()
        for _, style in styles
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
