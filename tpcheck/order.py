"""The order of parallelisms: what a built model shows of the order in which it was built.

The order is TP → EP → Float8 → activation checkpointing → FSDP2. Each step takes the modules as
the one before left them: a plan matches names, which a wrapper changes; a wrapper takes hold of
modules, which a later step may replace. So a wrong order leaves marks on the model, and they are
read here: names that a plan could not match, units that manage modules which are gone, hooks that
a replaced module has lost. Nothing runs, and no ranks are needed beyond those of the model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor, nn

from tpcheck.errors import InvalidArgument, shown
from tpcheck.figures.order_causes import (
    Converted,
    ExpertsInABlock,
    Float8AllGather,
    HooksLost,
    NamesChanged,
    OrderCause,
    Removed,
    Replaced,
    RoutedInStages,
    Row,
    UnitInWrapper,
)
from tpcheck.figures.plan import Finding
from tpcheck.plan.built import Unit, checkpointed, is_float8, is_unit, units
from tpcheck.plan.refused import refused
from tpcheck.plan.uncut import axes_by_name, told
from tpcheck.report import orders
from tpcheck.tensors.live import layers, mesh_axes
from tpcheck.tensors.meshes import Axes
from tpcheck.tensors.names import WRAPPERS, Wrapper, unwrapped
from tpcheck.vocabulary import Code

__all__ = ["Broken", "Row", "Step", "applied", "broken", "refused"]


class Step(StrEnum):
    """The steps by which a model is made parallel, in the right order."""

    TP = "tp"
    EP = "ep"
    FLOAT8 = "float8"
    CHECKPOINTING = "checkpointing"
    FSDP = "fsdp"


# Each row that is a matter of order: (what came first, what should have).
_EXCHANGED = {
    Row.FSDP_BEFORE_TP: (Step.FSDP, Step.TP),
    Row.CHECKPOINTING_BEFORE_TP: (Step.CHECKPOINTING, Step.TP),
    Row.FSDP_BEFORE_EP: (Step.FSDP, Step.EP),
    Row.FSDP_BEFORE_FLOAT8: (Step.FSDP, Step.FLOAT8),
    Row.FSDP_BEFORE_CHECKPOINTING: (Step.FSDP, Step.CHECKPOINTING),
}

Cut = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Broken:
    """One thing that the order of the steps broke.

    Args:
        cause: what it did to this model.
        names: the modules or parameters, full names.
    """

    cause: OrderCause
    names: tuple[str, ...]

    @property
    def row(self) -> Row:
        """Which mistake it is."""
        return self.cause.row

    @property
    def message(self) -> str:
        """What it did, in words."""
        return orders.said(self.cause, self.names)

    @property
    def finding(self) -> Finding:
        """As the auditor of plans reports it."""
        return Finding(Code.ORDER_OF_PARALLELISMS, self.cause, self.names)


def broken(
    model: nn.Module,
    *,
    cut: Cut | None = None,
    full: Mapping[str, Tensor] | None = None,
    mesh: Mapping[str, int] | None = None,
    axes: Axes | None = None,
) -> list[Broken]:
    """What the order of the steps broke in a built model; nothing in one that is built right.

    Args:
        model: as the last step left it.
        cut: parameter (by the unsharded model's name) → mesh axes along which it is meant to be
            sharded, of "tp" and "ep". Without it only marks that need no such word are read.
        full: parameter → the whole tensor, of which the shape counts. A parameter that is no
            DTensor along tp was never sharded where it has this shape; without it that can't be
            told from one that was sharded by hand, and is not broken.
        mesh: axis → size, for what depends on which axes there are.
        axes: of a DTensor's mesh, what its axes are. By default their own names; where none is
            "tp", each that is neither FSDP2's nor called after "dp", "fsdp", "cp", "ep" or "pp" is
            taken for it.
    """
    _require(cut=cut, axes=axes)
    axes = axes or axes_by_name(model)
    return marked(model, cut=told(model, cut or {}, full or {}), mesh=mesh or {}, axes=axes)


def _require(*, cut: object, axes: object) -> None:
    """
    Raises:
        InvalidArgument: one of them is of another kind than it must be.
    """
    if cut is not None and not isinstance(cut, Mapping):
        raise InvalidArgument(
            f'cut={shown(cut)}: give parameter → mesh axes, as in cut={{"up.weight": ["tp"]}}'
        )
    if axes is not None and not callable(axes):
        raise InvalidArgument(
            f"axes={shown(axes)}: give a function mesh → what each of its axes is, as in "
            'axes=lambda mesh: ["dp", "tp"]'
        )


def marked(model: nn.Module, *, cut: Cut, mesh: Mapping[str, int], axes: Axes) -> list[Broken]:
    """As `broken`, where `cut` has no parameter that is sharded by hand."""
    fsdp = list(units(model))
    marks = [
        *_names_changed(model, cut, axes),
        *_modules_replaced(model, fsdp),
        *_checkpointed_units(model),
        *_hooks_lost(model, axes),
        *_float8_all_gather(model, axes),
        *_experts_in_a_block(model, fsdp, cut),
        *_routed_in_stages(cut, mesh),
    ]
    return [Broken(cause, tuple(names)) for cause, names in marks if names]


def applied(
    model: nn.Module,
    *,
    cut: Cut | None = None,
    full: Mapping[str, Tensor] | None = None,
    axes: Axes | None = None,
) -> list[str]:
    """The steps that the model shows, of `Step`, in the order in which they were applied.

    Steps whose order leaves no mark stand in the right order. Arguments as in `broken`.
    """
    _require(cut=cut, axes=axes)
    axes = axes or axes_by_name(model)
    steps = _shown(model, cut or {}, axes)
    for row in {b.row for b in broken(model, cut=cut, full=full, axes=axes)} & set(_EXCHANGED):
        first, second = _EXCHANGED[row]
        if first in steps and second in steps:
            steps.remove(first)
            steps.insert(steps.index(second), first)
    return [step.value for step in steps]


def _shown(model: nn.Module, cut: Cut, axes: Axes) -> list[Step]:
    """The steps of which the model shows anything, in the right order."""
    along = {axis for p in model.parameters() for axis in mesh_axes(p, axes)}
    along |= {axis for meant in cut.values() for axis in meant}
    kinds = {type(m).__name__ for m in model.modules()}
    shows = {
        Step.TP: "tp" in along,
        Step.EP: "ep" in along,
        Step.FLOAT8: any(is_float8(m) for m in model.modules()),
        Step.CHECKPOINTING: any(checkpointed(m) is not None for m in model.modules()),
        Step.FSDP: any(units(model)) or "FullyShardedDataParallel" in kinds,
    }
    return [step for step in Step if shows[step]]


# ---- the marks: each is a cause, and the names that it is about (none: nothing is broken)

Marks = Iterator[tuple[OrderCause, Collection[str]]]


def _names_changed(model: nn.Module, cut: Cut, axes: Axes) -> Marks:
    missed: dict[Wrapper, list[str]] = {}
    reached = set()  # wrappers under which TP did shard: they came later
    for name, parameter in model.named_parameters():
        wrappers = [Wrapper(part) for part in name.split(".") if part in WRAPPERS]
        if "tp" in mesh_axes(parameter, axes):
            reached |= set(wrappers)
        elif wrappers and "tp" in cut.get(unwrapped(name, model), ()):
            missed.setdefault(wrappers[0], []).append(unwrapped(name, model))
    for wrapper, names in missed.items():
        if wrapper not in reached:
            yield NamesChanged(wrapper), names


def _modules_replaced(model: nn.Module, fsdp: list[Unit]) -> Marks:
    """Units that manage parameters of modules which are no longer in the model: what replaced
    those computes with the shard, and FSDP gathers for nobody."""
    present = {id(module) for module in model.modules()}
    heirs = {
        id(parameter): (name, module)
        for name, module in model.named_modules()
        for parameter in module._parameters.values()
        if parameter is not None
    }
    converted: list[str] = []
    replaced: list[str] = []
    removed: list[str] = []
    for unit in fsdp:
        for managed in unit.managed:
            if id(managed.owner) in present:
                continue
            name, heir = heirs.get(id(managed.parameter), ("", None))
            if heir is None:
                kind = f"{type(managed.owner).__name__}.{managed.name}"
                removed.append(f"{unit.name}: {kind}" if unit.name else kind)
            else:
                marked = converted if is_float8(heir) else replaced
                marked.append(f"{unwrapped(name, model)}.{managed.name}")
    yield from ((Converted(), converted), (Replaced(), replaced), (Removed(), removed))


def _checkpointed_units(model: nn.Module) -> Marks:
    wrapped = [(name, checkpointed(module)) for name, module in model.named_modules()]
    names = [
        unwrapped(name, model) for name, inner in wrapped if inner is not None and is_unit(inner)
    ]
    yield UnitInWrapper(), [name or "the model" for name in names]


def _hooks_lost(model: nn.Module, axes: Axes) -> Marks:
    names = [
        unwrapped(name, model)
        for name, module in model.named_modules()
        if is_float8(module)
        and "tp" in mesh_axes(module.weight, axes)
        and not (module._forward_pre_hooks or module._forward_hooks)
    ]
    yield HooksLost(), names


def _float8_all_gather(model: nn.Module, axes: Axes) -> Marks:
    """Weights that TP shards and that bring the hook by which FSDP gathers them in float8."""
    names = [
        unwrapped(name, model)
        for name, parameter in model.named_parameters()
        if "tp" in mesh_axes(parameter, axes)
        and any(hasattr(part, "fsdp_pre_all_gather") for part in layers(parameter))
    ]
    yield Float8AllGather(), names


def _experts_in_a_block(model: nn.Module, fsdp: list[Unit], cut: Cut) -> Marks:
    paths = {id(module): unwrapped(name, model) for name, module in model.named_modules()}
    every = [unwrapped(name, model) for name, _ in model.named_parameters()]
    shared = [name for name in every if "ep" not in cut.get(name, ())]
    for unit in fsdp:
        names = [f"{paths[id(m.owner)]}.{m.name}" for m in unit.managed if id(m.owner) in paths]
        experts = tuple(name for name in names if "ep" in cut.get(name, ()))
        layer = _routed_layer(experts, shared)
        others = tuple(name for name in names if not name.startswith(layer))
        if experts and others:
            cause = ExpertsInABlock(unit.name, experts, others)
            yield cause, (unit.name or "the model", *experts)


def _routed_layer(experts: Collection[str], others: list[str]) -> str:
    """The prefix of the layer that routes to the experts: the module that holds them and, beside
    them, its router."""
    if not experts:
        return ""
    modules = [name.split(".")[:-1] for name in experts]
    shared = 0
    while all(len(m) > shared and m[shared] == modules[0][shared] for m in modules):
        shared += 1
    for parts in (modules[0][:shared], modules[0][: shared - 1]):
        prefix = "".join(f"{part}." for part in parts)
        if any(name.startswith(prefix) for name in others):
            return prefix
    return "".join(f"{part}." for part in modules[0][:shared])


def _routed_in_stages(cut: Cut, mesh: Mapping[str, int]) -> Marks:
    routed = [name for name, axes in cut.items() if "ep" in axes]
    yield RoutedInStages(), routed if mesh.get("pp", 1) > 1 else []
