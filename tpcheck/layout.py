"""A layout: how each tensor of a case is placed, by name."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tpcheck.errors import LayoutError, did_you_mean, shown
from tpcheck.given import demand, is_mapping_of
from tpcheck.placement import Blocks, Entry, Partial, Placement, Replicate, Shard, of_torch


@dataclass(frozen=True)
class Layout:
    """Tensor name → placement, for parameters (and buffers), inputs and outputs.

    Names may be patterns (`layers.*.q_proj.weight`). What is not named is `Replicate()`; a name
    that matches nothing is a `LayoutError`. A gradient is placed as its tensor is, except those
    named in `grads` (`Partial()` there means that the candidate leaves the sum to a later step: the
    harness then sums over the axis before it compares). So is a tensor of an optimizer's state,
    `up.weight.exp_avg` say, of its parameter's shape, or with some of its dims of size 1; others
    are named in `states`.

    Placements are tpcheck's, or those of torch's DTensor, `(Shard(0),)` as `DTensor.placements` has
    them, too; they are kept in tpcheck's words.
    """

    params: Mapping[str, Entry] = field(default_factory=dict)
    inputs: Mapping[str, Entry] = field(default_factory=dict)
    outputs: Mapping[str, Entry] = field(default_factory=dict)
    grads: Mapping[str, Entry] = field(default_factory=dict)
    states: Mapping[str, Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for group in ("params", "inputs", "outputs", "grads", "states"):
            entries = getattr(self, group)
            named = is_mapping_of(entries, str)
            demand(self, group, named, "a mapping of names to placements", kind=LayoutError)
            ours = {
                name: _entry(f"Layout({group}={{{shown(name)}: …}})", entry)
                for name, entry in entries.items()
            }
            object.__setattr__(self, group, ours)


def _entry(where: str, given: object) -> Entry:
    """What was given for a tensor, in tpcheck's words; `where` is for messages only."""
    if isinstance(given, (tuple, list)) and len(given) == 1:
        given = given[0]
    try:
        if isinstance(given, Mapping):
            entry: object = _last_what_is_strided(given)
        else:
            entry = _ours(given)
    except LayoutError as error:
        raise LayoutError(f"{where}: {error}") from None
    named = entry.items() if isinstance(entry, Mapping) else [("tp", entry)]
    if all(isinstance(axis, str) and isinstance(own, Placement) for axis, own in named):
        return entry  # type: ignore[return-value]
    what = "give Shard(dim), Replicate() or another of tpcheck's or torch's, or axis → placement"
    raise LayoutError(f"{where} is {shown(given)}: {what}")


def _ours(own: Any) -> Any:
    """A placement of torch's DTensor in tpcheck's words; anything else as it is.

    Raises:
        LayoutError: there is no word for it.
    """
    kind = of_torch(own)
    if kind == "Replicate":
        return Replicate()
    if kind == "Shard":
        return Shard(own.dim)
    if kind == "_StridedShard":  # a fused weight: so many blocks, each sharded on its own
        return Blocks(own.dim, own.split_factor)
    if kind == "Partial" and own.reduce_op == "sum":
        return Partial()
    if kind == "Partial":
        raise LayoutError(
            f"Partial({own.reduce_op!r}) is not a placement that tpcheck compares: reduce it in "
            "the candidate, or give Partial(), whose terms add up to the tensor"
        )
    return own


def _last_what_is_strided(given: Mapping[object, object]) -> dict[object, object]:
    """torch's placements by axis, in the order in which they are applied: a `_StridedShard` of a
    dim that another axis shards, too, is FSDP's, which comes after it."""
    dims = {axis: own.dim for axis, own in given.items() if hasattr(own, "dim")}
    strided = any(of_torch(own) == "_StridedShard" for own in given.values())
    if strided and len({dim < 0 for dim in dims.values()}) > 1:
        raise LayoutError("_StridedShard beside another shard: count the dims of both from one end")
    found: dict[object, object] = {}
    later: dict[object, object] = {}
    for axis, own in given.items():
        others = [dim for other, dim in dims.items() if other != axis]
        if of_torch(own) == "_StridedShard" and dims[axis] in others:
            later = {axis: Shard(dims[axis]), **later}
        else:
            found[axis] = _ours(own)
    return found | later


def matched(group: str, entries: Mapping[str, Entry], names: list[str]) -> dict[str, Entry]:
    """The names that the layout names, patterns expanded. `group` is for the message only."""
    out: dict[str, Entry] = {}
    for pattern, entry in entries.items():
        hits = fnmatch.filter(names, pattern) if "*" in pattern else [pattern]
        if not hits or not set(hits) <= set(names):
            what = f"the layout's {group} name {pattern!r}, which the reference does not have"
            raise LayoutError(what + did_you_mean(pattern, names))
        out.update(dict.fromkeys(hits, entry))
    return out


def resolve(group: str, entries: Mapping[str, Entry], names: list[str]) -> dict[str, Entry]:
    """Every name in `names` → its entry; `Replicate()` where the layout says nothing."""
    named = matched(group, entries, names)
    return {name: named.get(name, Replicate()) for name in names}
