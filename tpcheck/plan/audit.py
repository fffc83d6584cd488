"""`audit`: a plan held against a model, without ranks or after parallelizing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.parameter import is_lazy

from tpcheck.errors import InvalidArgument
from tpcheck.placement import Shard
from tpcheck.plan import flow, heads, parallelized
from tpcheck.plan.findings import Audit, Entry, Finding, Parameter, brief, generic, ordered
from tpcheck.plan.followed import Promise, bytes_held, promise, text, uneven
from tpcheck.plan.match import Match, Tree, alike, candidates, join, owner_of, wrapper_on
from tpcheck.plan.plan import as_plan

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def audit(
    model: nn.Module,
    plan: Any,
    *,
    tp: int | None = None,
    mesh: DeviceMesh | None = None,
    whole: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
) -> Audit:
    """Says what a plan matches, what it skips, and what is sharded.

    With `tp`, `model` is the unsharded model, on any device (the meta device for large ones), and
    the audit says what the plan would do; nothing is allocated and no ranks run. With `mesh`,
    `model` was parallelized over it, and its DTensors are compared with what the plan promises.

    Args:
        model: the module that the plan's keys start from.
        plan: key → style (`ParallelStyle` objects, or strings), or a `Plan`, which also says what
            is meant to stay whole.
        tp: degree of tensor parallelism.
        mesh: the mesh of a parallelized model: 1-D, or with an axis "tp".
        whole: patterns of parameters that are meant to stay whole, beside the plan's own.
        optional: patterns of keys that may match nothing, beside the plan's own.

    Raises:
        InvalidArgument: no plan, no style, no degree, no model, or one that is not initialized.
    """
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"audit(model=…) is a {type(model).__name__}, not an nn.Module")
    lazy = next((name for name, p in model.named_parameters() if is_lazy(p)), None)
    if lazy is not None:
        raise InvalidArgument(f"{lazy} has no shape before a first forward (a lazy module)")
    if (tp is None) == (mesh is None):
        raise InvalidArgument(
            "give audit(tp=…) for a model as it is before it is parallelized, or mesh=… for one "
            "that was"
        )
    given = as_plan(plan)
    given = replace(given, whole=(*given.whole, *whole), optional=(*given.optional, *optional))
    degree = parallelized.degree_of(mesh) if mesh is not None else tp
    if not isinstance(degree, int) or degree < 1:
        raise InvalidArgument(f"tp={degree!r} is not a degree")
    found = promise(Tree(model, unwrapped=mesh is not None), given, degree)
    faults = faults_of(found)
    if mesh is not None:
        faults += parallelized.findings(model, parallelized.promised(found))
    return _report(found, [*faults, *_uncovered(found, faults)], mesh)


def faults_of(found: Promise) -> list[Finding]:
    """Faults that follow from the plan and the model's shape alone, but for what stays whole."""
    return [*found.findings, *_of_the_plan(found), *_partly_matched(found)]


def findings_of(found: Promise) -> list[Finding]:
    """All that an audit without ranks finds."""
    faults = faults_of(found)
    return ordered([*faults, *_uncovered(found, faults)])


def _of_the_plan(found: Promise) -> Iterator[Finding]:
    if found.tp > 1:
        yield from _ties(found)
        yield from heads.findings(found)
        yield from flow.findings(found)


def _ties(found: Promise) -> Iterator[Finding]:
    """Tied weights that the plan puts in different places, or that nothing ties again."""
    again = callable(getattr(found.tree.model, "tie_weights", None))
    for group in found.tied:
        owners = {id(found.tree.modules[owner_of(name)]): name for name in reversed(group)}
        if len(owners) == 1:  # one module in several places: it is placed once
            continue
        where = {name: found.placed.get(name) for name in reversed(owners.values())}
        places = {text(p.placement) if p else "whole" for p in where.values()}
        if places <= {"whole", "Replicate()"} or (len(places) == 1 and again):
            continue
        how = ", ".join(f"{n}: {text(p.placement) if p else 'whole'}" for n, p in where.items())
        message = f"{how}; they are one tensor, and would be {len(owners)}"
        if len(places) == 1:
            message += " (parallelize_module registers a new parameter for each)"
        key = next((p.key for p in where.values() if p), None)
        yield Finding("tied-weights-split", message, group, key)


def _open(found: Promise, name: str) -> bool:
    """Whether a parameter is whole though nothing says that it should be."""
    meant = name in found.placed or name in found.whole or name in found.reduced
    return not meant and not isinstance(parallelized.placement(found.tree.parameters[name]), Shard)


def _partly_matched(found: Promise) -> Iterator[Finding]:
    """Entries that match in some layers, and in others are kept from their module by a wrapper or
    by another name of it. A layer of another make (MoE beside dense) has no such module."""
    for key, matched in found.matches.items():
        lacking = [missing for missing in matched.missing if _hidden(found, *missing)]
        if matched.hits and lacking:
            rest = lacking[0][1]
            paths = tuple(path for path, _ in lacking)
            message = (
                f"{key!r} matches {len(matched.hits)} of {matched.expected}: {brief(paths)} has no "
                f"{rest.partition('.')[0]!r}"
            )
            near = candidates(found.tree, Match(key, (), tuple(lacking)))
            if near:
                message += f"; there is {', '.join(near)}"
            yield Finding("plan-entry-unmatched", message, paths, key, near)


def _hidden(found: Promise, path: str, rest: str) -> bool:
    """Whether a module that an entry means is below `path`, where the entry can't reach it."""
    tree = found.tree
    if wrapper_on(tree, Match("", (), ((path, rest),))):
        return any(_open(found, n) for n in tree.parameters if n.startswith(f"{path}."))
    others = [join(path, name) for name in alike(rest, tree.children.get(path, ()), cutoff=0.75)]
    return any(_open(found, join(name, "weight")) for name in others if _weighs(tree, name))


def _weighs(tree: Tree, module: str) -> bool:
    return join(module, "weight") in tree.parameters


def _uncovered(found: Promise, faults: list[Finding]) -> Iterator[Finding]:
    """Parameters that stay whole and are not declared, by kind and reason."""
    explained = {name for fault in faults for name in fault.names}
    kinds: dict[tuple[str, str], list[str]] = {}
    for name in found.tree.parameters:
        if not _open(found, name) or name in explained or owner_of(name) in explained:
            continue
        reason = _why_whole(found, name)
        kinds.setdefault((generic(name), reason), []).append(name)
    for (_, reason), names in kinds.items():
        message = f"{brief(names)}: {reason}; shard it, or declare it whole"
        yield Finding("parameter-not-sharded", message, tuple(names))


def _why_whole(found: Promise, name: str) -> str:
    """Why no rank holds less than the whole parameter."""
    placed = found.placed.get(name)
    if placed is not None:
        if placed.style.keeps:
            return f"kept whole by {placed.style.name} ({placed.key!r})"
        return f"bias of a row split, added once after the sum ({placed.key!r})"
    if name in found.whole:
        return "declared whole"
    if name in found.reduced:
        return "declared reduced"
    owner = owner_of(name)
    path = owner
    while True:
        for key, style in found.on.get(path, ()):
            if not style.split:
                return f"{style.name} ({key!r}) shards nothing"
        if not path:
            break
        path = owner_of(path)
    siblings = _siblings(found, name)
    if siblings:
        return f"left out, while {brief(siblings)} of the same kind are sharded"
    meant = _meant(found, owner)
    return f"no entry names it ({meant!r} matches nothing)" if meant else "no entry names it"


def _siblings(found: Promise, name: str) -> list[str]:
    """Parameters of the same pattern that an entry does shard."""
    kind = generic(name)
    pattern = re.compile(re.escape(kind).replace(r"\*", r"\d+"))
    return [n for n in found.placed if pattern.fullmatch(n) and found.shards(n)]


def _meant(found: Promise, owner: str) -> str | None:
    """An entry that matches nothing and may mean the module."""
    for key, matched in found.matches.items():
        if not matched.hits and generic(owner) in candidates(found.tree, matched):
            return key
    return None


# ---- rows


def _report(found: Promise, faults: list[Finding], mesh: DeviceMesh | None) -> Audit:
    out = Audit(found.tp, mesh is not None, findings=ordered(faults))
    out.entries = [_entry(found, key) for key in found.styles]
    seen: set[tuple[int, str]] = set()
    counted: set[int] = set()
    for name, tensor in found.tree.parameters.items():
        row = _parameter(found, name, mesh)
        out.parameters.append(row)
        if id(tensor) not in counted:
            counted.add(id(tensor))
            out.whole_bytes += parallelized.full_bytes(tensor)
        if (id(tensor), row.placement) not in seen:  # a tied weight that is split counts twice
            seen.add((id(tensor), row.placement))
            out.held_bytes += row.held
            out.promised_bytes += row.promised
    return out


def _entry(found: Promise, key: str) -> Entry:
    matched = found.matches[key]
    sharded = [n for n, p in found.placed.items() if p.key == key and found.shards(n)]
    near = () if matched.hits else candidates(found.tree, matched)
    # what a key that matches nothing should match is what it seems to mean
    expected = len(found.tree.kinds[near[0]]) if near else matched.expected
    return Entry(key, found.styles[key].name, matched.hits, expected, len(sharded), near)


def _parameter(found: Promise, name: str, mesh: DeviceMesh | None) -> Parameter:
    tensor = found.tree.parameters[name]
    placed = found.placed.get(name)
    placement = placed.placement if placed else None
    reason = _why_whole(found, name)
    if placed and isinstance(placement, Shard):
        reason = f"{placed.style.name} ({placed.key!r}){uneven(tensor, placement, found.tp)}"
    kept = placed is not None and not isinstance(placement, Shard)
    meant = kept or name in found.whole or name in found.reduced
    split = placement if isinstance(placement, Shard) else Shard(0)
    promised = bytes_held(tensor, None if meant else split, found.tp)
    if mesh is None:
        where = text(placement) if placement else "whole"
        held = bytes_held(tensor, placement, found.tp)
    else:
        where, held = parallelized.where(tensor, mesh), parallelized.held_bytes(tensor)
    return Parameter(
        name=name,
        shape=tuple(tensor.shape),
        placement=where,
        reason=reason,
        entry=placed.key if placed else None,
        elements=tensor.numel(),
        held=held,
        promised=promised,
    )
