"""A layout: how each tensor of a case is placed, by name."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field

from tpcheck.errors import LayoutError, did_you_mean, shown
from tpcheck.given import demand, is_mapping_of
from tpcheck.placement import Entry, Placement, Replicate


@dataclass(frozen=True)
class Layout:
    """Tensor name → placement, for parameters (and buffers), inputs and outputs.

    Names may be patterns (`layers.*.q_proj.weight`). What is not named is `Replicate()`; a name
    that matches nothing is a `LayoutError`. A gradient is placed as its tensor is, except those
    named in `grads` (`Partial()` there means that the candidate leaves the sum to a later step: the
    harness then sums over the axis before it compares). So is a tensor of an optimizer's state,
    `up.weight.exp_avg` say, of its parameter's shape, or with some of its dims of size 1; others
    are named in `states`.
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
            for name, entry in entries.items():
                _check_entry(f"Layout({group}={{{shown(name)}: …}})", entry)


def _check_entry(where: str, entry: object) -> None:
    named = entry.items() if isinstance(entry, Mapping) else [("tp", entry)]
    if not all(isinstance(axis, str) and isinstance(own, Placement) for axis, own in named):
        what = "give Shard(dim), Replicate() or another of tpcheck's, or axis → placement"
        raise LayoutError(f"{where} is {shown(entry)}: {what}")


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
