"""`audit`: a plan held against a model, without ranks or after parallelizing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.parameter import is_lazy

from tpcheck.errors import InvalidArgument
from tpcheck.figures.plan import Audit, EntryRow, Finding, ParameterRow, Source
from tpcheck.figures.plan_causes import MatchedInPart, TiedApart
from tpcheck.figures.plan_reasons import Reason, ShardedBy
from tpcheck.placement import Replicate, Shard
from tpcheck.plan import flow, heads, ignored, parallelized
from tpcheck.plan.findings import reported
from tpcheck.plan.followed import Promise, bytes_held, follow, uneven
from tpcheck.plan.match import (
    SURELY_ALIKE,
    Match,
    Tree,
    alike,
    candidates,
    join,
    owner_of,
    wrapper_on,
)
from tpcheck.plan.plan import Plan, as_plan, require_patterns
from tpcheck.plan.whole import is_open, undeclared, why_whole
from tpcheck.report.placements import placed as in_words
from tpcheck.report.placements import reason
from tpcheck.tensors.meshes import axes_of, beside
from tpcheck.vocabulary import Code

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
    if (tp is None) == (mesh is None):
        raise InvalidArgument(
            "give audit(tp=…) for a model as it is before it is parallelized, or mesh=… for one "
            "that was"
        )
    require_patterns("whole", whole)
    require_patterns("optional", optional)
    declared = as_plan(plan)
    declared = replace(
        declared, whole=(*declared.whole, *whole), optional=(*declared.optional, *optional)
    )
    return audited(model, declared, tp=tp, mesh=mesh)


def audited(
    model: nn.Module,
    declared: Plan,
    *,
    tp: int | None = None,
    mesh: DeviceMesh | None = None,
    source: Source = Source.PYTHON,
    skipped: Mapping[str, str] = MappingProxyType({}),
) -> Audit:
    """As `audit`, of a plan with all its declarations.

    Args:
        source: where it came from.
        skipped: keys that `parallelize_module` has skipped (`plan.ignored`).
    """
    _check_model(model)
    degree = parallelized.degree_of(mesh) if mesh is not None else tp
    if not isinstance(degree, int) or degree < 1:
        raise InvalidArgument(f"tp={degree!r} is not a degree")
    axes = axes_of if mesh is None else beside(mesh, parallelized.axis_of(mesh))
    promise = follow(Tree(model, unwrapped=mesh is not None, axes=axes), declared, degree)
    faults = [*ignored.findings(promise.tree, skipped), *faults_of(promise)]
    if mesh is not None:
        faults += parallelized.findings(model, parallelized.promised(promise), tp=degree, axes=axes)
    return _report(promise, faults, mesh, source)


def _check_model(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"audit(model=…) is a {type(model).__name__}, not an nn.Module")
    lazy = next((name for name, p in model.named_parameters() if is_lazy(p)), None)
    if lazy is not None:
        raise InvalidArgument(f"{lazy} has no shape before a first forward (a lazy module)")


def faults_of(promise: Promise) -> list[Finding]:
    """Faults that follow from the plan and the model's shape alone, but for what stays whole."""
    return [*promise.findings, *_of_the_plan(promise), *_partly_matched(promise)]


def findings_of(promise: Promise) -> list[Finding]:
    """All that an audit without ranks finds."""
    faults = faults_of(promise)
    return [*faults, *_undeclared(promise, faults)]


def _undeclared(promise: Promise, faults: list[Finding]) -> Iterator[Finding]:
    return undeclared(promise, {name for fault in faults for name in fault.names})


def _of_the_plan(promise: Promise) -> Iterator[Finding]:
    if promise.tp > 1:
        yield from _ties(promise)
        yield from heads.findings(promise)
        yield from flow.findings(promise)


def _ties(promise: Promise) -> Iterator[Finding]:
    """Tied weights that the plan puts in different places, or that nothing ties again."""
    tied_again = callable(getattr(promise.tree.model, "tie_weights", None))
    for group in promise.tied:
        owners = {id(promise.tree.modules[owner_of(name)]): name for name in reversed(group)}
        if len(owners) == 1:  # one module in several places: it is placed once
            continue
        placed = {name: promise.placed.get(name) for name in reversed(owners.values())}
        cause = TiedApart(tuple((name, p.placement if p else None) for name, p in placed.items()))
        all_whole = not any(isinstance(place, Shard) for _, place in cause.places)
        if all_whole or (cause.together and tied_again):
            continue
        key = next((p.key for p in placed.values() if p), None)
        yield Finding(Code.TIED_WEIGHTS_SPLIT, cause, group, key)


def _partly_matched(promise: Promise) -> Iterator[Finding]:
    """Entries that match in some layers, and in others are kept from their module by a wrapper or
    by another name of it. A layer of another make (MoE beside dense) has no such module."""
    for key, matched in promise.matches.items():
        lacking = [missing for missing in matched.missing if _hidden(promise, *missing)]
        if matched.hits and lacking:
            part = lacking[0][1].partition(".")[0]
            cause = MatchedInPart(len(matched.hits), matched.expected, part)
            near = candidates(promise.tree, Match(key, (), tuple(lacking)))
            paths = tuple(path for path, _ in lacking)
            yield Finding(Code.PLAN_ENTRY_UNMATCHED, cause, paths, key, near)


def _hidden(promise: Promise, path: str, rest: str) -> bool:
    """Whether a module that an entry means is below `path`, where the entry can't reach it."""
    tree = promise.tree
    if wrapper_on(tree, Match("", (), ((path, rest),))):
        return any(is_open(promise, n) for n in tree.parameters if n.startswith(f"{path}."))
    others = alike(rest, tree.children.get(path, ()), cutoff=SURELY_ALIKE)
    weights = [join(join(path, name), "weight") for name in others]
    return any(is_open(promise, weight) for weight in weights if weight in tree.parameters)


# ---- rows


def _report(
    promise: Promise, faults: list[Finding], mesh: DeviceMesh | None, source: Source
) -> Audit:
    findings = reported([*faults, *_undeclared(promise, faults)], source)
    out = Audit(promise.tp, mesh is not None, findings=findings)
    out.entries = [_entry(promise, key) for key in promise.styles]
    seen: set[tuple[int, str]] = set()
    counted: set[int] = set()
    for name, tensor in promise.tree.parameters.items():
        row = _parameter(promise, name, mesh)
        out.parameters.append(row)
        if id(tensor) not in counted:
            counted.add(id(tensor))
            out.whole_bytes += parallelized.full_bytes(tensor)
        if (id(tensor), row.placement) not in seen:  # a tied weight that is split counts twice
            seen.add((id(tensor), row.placement))
            out.held_bytes += row.held
            out.promised_bytes += row.promised
    return out


def _entry(promise: Promise, key: str) -> EntryRow:
    matched = promise.matches[key]
    sharded = [n for n, p in promise.placed.items() if p.key == key and promise.shards(n)]
    near = () if matched.hits else candidates(promise.tree, matched)
    # what a key that matches nothing should match is what it seems to mean
    expected = len(promise.tree.kinds[near[0]]) if near else matched.expected
    return EntryRow(key, promise.styles[key].name, matched.hits, expected, len(sharded), near)


def _parameter(promise: Promise, name: str, mesh: DeviceMesh | None) -> ParameterRow:
    tensor = promise.tree.parameters[name]
    placed = promise.placed.get(name)
    place = placed.placement if placed else None
    held = bytes_held(tensor, place, promise.tp)
    if mesh is not None:
        place, held = promise.tree.placement(name), parallelized.held_bytes(tensor)
    why = _why(promise, name)
    return ParameterRow(
        name=name,
        shape=tuple(tensor.shape),
        placement=in_words(place),
        why=why,
        reason=reason(why),
        entry=placed.key if placed else None,
        elements=tensor.numel(),
        held=held,
        promised=bytes_held(tensor, _meant(promise, name), promise.tp),
    )


def _why(promise: Promise, name: str) -> Reason:
    placed = promise.placed.get(name)
    if placed is None or not isinstance(placed.placement, Shard):
        return why_whole(promise, name)
    tensor = promise.tree.parameters[name]
    return ShardedBy(placed.style.name, placed.key, uneven(tensor, placed.placement, promise.tp))


def _meant(promise: Promise, name: str) -> Shard | Replicate:
    """Where a parameter would be if all that is not declared whole were sharded."""
    if name in promise.whole or name in promise.reduced:
        return Replicate()
    placed = promise.placed.get(name)
    return placed.placement if placed else Shard(0)
