"""The order of parallelisms: what a built model shows of the order in which it was built.

The order is TP → EP → Float8 → activation checkpointing → FSDP2. Each step takes the modules as
the one before left them: a plan matches names, which a wrapper changes; a wrapper takes hold of
modules, which a later step may replace. So a wrong order leaves marks on the model, and they are
read here: names that a plan could not match, units that manage modules which are gone, hooks that
a replaced module has lost. Nothing runs, and no ranks are needed beyond those of the model.

FSDP2 keeps what it manages in private state; `_units` is the one place that reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tpcheck.plan.findings import Finding, brief
from tpcheck.tensors.names import unwrapped

CODE = "order-of-parallelisms"
STEPS = ("tp", "ep", "float8", "checkpointing", "fsdp")

FSDP_BEFORE_TP = "FSDP before TP"
CHECKPOINTING_BEFORE_TP = "activation checkpointing before TP"
COMPILE_BEFORE_TP = "torch.compile before TP"
FSDP_BEFORE_EP = "FSDP before EP"
FSDP_BEFORE_FLOAT8 = "Float8 after FSDP"
REPLACED_AFTER_FSDP = "modules replaced after FSDP"
FSDP_BEFORE_CHECKPOINTING = "activation checkpointing after FSDP"
FLOAT8_WITHOUT_HOOKS = "Float8 after TP without its hooks"
FLOAT8_ALL_GATHER_WITH_TP = "Float8 + TP + float8 all-gather"
EP_IN_A_BLOCK_UNIT = "MoE + EP with per-block FSDP"
MOE_WITH_PIPELINE = "MoE + pipeline parallelism"

# What a wrapper's attribute in a parameter's name says was there before TP.
_BEFORE_TP = {
    "_fsdp_wrapped_module": FSDP_BEFORE_TP,
    "_checkpoint_wrapped_module": CHECKPOINTING_BEFORE_TP,
    "_orig_mod": COMPILE_BEFORE_TP,
}
# Each row that is a matter of order: (what came first, what should have).
_EXCHANGED = {
    FSDP_BEFORE_TP: ("fsdp", "tp"),
    CHECKPOINTING_BEFORE_TP: ("checkpointing", "tp"),
    FSDP_BEFORE_EP: ("fsdp", "ep"),
    FSDP_BEFORE_FLOAT8: ("fsdp", "float8"),
    FSDP_BEFORE_CHECKPOINTING: ("fsdp", "checkpointing"),
}


# Where torch itself refuses, while the model is built: a part of its error → the row.
_REFUSED = {"Cannot distribute a DTensor with device mesh": FSDP_BEFORE_TP}


def refused(reason: str) -> str | None:
    """The row that an error of torch in the build speaks of, if any."""
    return next((row for part, row in _REFUSED.items() if part in reason), None)


@dataclass(frozen=True)
class Broken:
    """One thing that the order of the steps broke.

    Args:
        row: which mistake it is, one of this module's names.
        message: what it did to this model.
        names: the modules or parameters, full names.
    """

    row: str
    message: str
    names: tuple[str, ...]

    @property
    def finding(self) -> Finding:
        """As the auditor of plans reports it."""
        return Finding(CODE, f"{self.row}: {self.message}", self.names)


def broken(
    model: nn.Module,
    *,
    cut: Mapping[str, Collection[str]] | None = None,
    mesh: Mapping[str, int] | None = None,
) -> list[Broken]:
    """What the order of the steps broke in a built model; nothing in one that is built right.

    Args:
        model: as the last step left it.
        cut: parameter (by the unsharded model's name) → mesh axes along which it is meant to be
            sharded, of "tp" and "ep". Without it only marks that need no such word are read.
        mesh: axis → size, for what depends on which axes there are.
    """
    cut, mesh = cut or {}, mesh or {}
    units = list(_units(model))
    found = [
        *_names_changed(model, cut),
        *_modules_replaced(model, units),
        *_checkpointed_units(model),
        *_hooks_lost(model),
        *_float8_all_gather(model),
        *_experts_in_a_block(model, units, cut),
    ]
    routed = [name for name, axes in cut.items() if "ep" in axes]
    if routed and mesh.get("pp", 1) > 1:
        message = f"{brief(routed)}: tokens are routed by their data, stages are cut once for all"
        found.append(Broken(MOE_WITH_PIPELINE, message, tuple(routed)))
    return found


def applied(model: nn.Module, *, cut: Mapping[str, Collection[str]] | None = None) -> list[str]:
    """The steps that the model shows, of `STEPS`, in the order in which they were applied.

    Steps whose order leaves no mark stand in the right order. `cut` as in `broken`.
    """
    cut = cut or {}
    axes = {axis for p in model.parameters() for axis in _mesh_axes(p)}
    sharded_by_ep = any("ep" in own for own in cut.values())
    kinds = {type(m).__name__ for m in model.modules()}
    shows = {
        "tp": "tp" in axes or any("tp" in own for own in cut.values()),
        "ep": "ep" in axes or sharded_by_ep,
        "float8": any(_is_float8(m) for m in model.modules()),
        "checkpointing": any(_wrapped(m) is not None for m in model.modules()),
        "fsdp": any(_units(model)) or "FullyShardedDataParallel" in kinds,
    }
    steps = [step for step in STEPS if shows[step]]
    for row in {b.row for b in broken(model, cut=cut)}:
        first, second = _EXCHANGED.get(row, ("", ""))
        if first in steps and second in steps:
            steps.remove(first)
            steps.insert(steps.index(second), first)
    return steps


# ---- what a model is made of


@dataclass(frozen=True)
class _Managed:
    """One parameter that FSDP2 manages, and the module that it will put it back into."""

    parameter: Tensor
    owner: nn.Module
    name: str


@dataclass(frozen=True)
class _Unit:
    """One FSDP2 unit: what `fully_shard` was called on, and its parameters."""

    name: str
    managed: tuple[_Managed, ...]


def _units(model: nn.Module) -> Iterator[_Unit]:
    seen: set[int] = set()
    for name, module in model.named_modules():
        state = getattr(module, "_get_fsdp_state", lambda: None)()
        if state is None or id(state) in seen:
            continue
        seen.add(id(state))
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:  # torch < 2.13: one group a unit
            groups = [g for g in (state._fsdp_param_group,) if g is not None]
        managed = [
            _Managed(p.sharded_param, p._module_info.module, p._module_info.param_name)
            for group in groups
            for p in group.fsdp_params
        ]
        yield _Unit(unwrapped(name), tuple(managed))


def _mesh_axes(parameter: Tensor) -> tuple[str, ...]:
    """The mesh axes of every DTensor in a parameter; none of any other tensor."""
    meshes = (getattr(part, "device_mesh", None) for part in _layers(parameter))
    return tuple(axis for mesh in meshes if mesh is not None for axis in mesh.mesh_dim_names or ())


def _layers(tensor: Tensor) -> Iterator[Tensor]:
    """A tensor and, of wrappers such as DTensor, the tensors inside."""
    yield tensor
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        for inner in (getattr(tensor, name) for name in names):
            if isinstance(inner, Tensor):
                yield from _layers(inner)


def _wrapped(module: nn.Module) -> nn.Module | None:
    """What a CheckpointWrapper wraps."""
    inner = module._modules.get("_checkpoint_wrapped_module")
    return inner if isinstance(inner, nn.Module) else None


def _is_float8(module: nn.Module) -> bool:
    return any(cls.__name__ == "Float8Linear" for cls in type(module).__mro__)


# ---- the marks


def _names_changed(model: nn.Module, cut: Mapping[str, Collection[str]]) -> Iterator[Broken]:
    """Parameters that TP is meant to shard and did not, under a wrapper that changed their
    names: the plan's keys met no module of theirs."""
    missed: dict[str, list[str]] = {}
    reached = set()  # wrappers under which TP did shard: they came later
    for name, parameter in model.named_parameters():
        wrappers = [part for part in name.split(".") if part in _BEFORE_TP]
        if "tp" in _mesh_axes(parameter):
            reached |= set(wrappers)
        elif wrappers and "tp" in cut.get(unwrapped(name), ()):
            missed.setdefault(wrappers[0], []).append(unwrapped(name))
    for part, names in missed.items():
        if part not in reached:
            message = f"{brief(names)}: whole along tp; {part!r} stands in the name, and in no key"
            yield Broken(_BEFORE_TP[part], message, tuple(names))


def _modules_replaced(model: nn.Module, units: list[_Unit]) -> Iterator[Broken]:
    """Units that manage parameters of modules which are no longer in the model: what replaced
    those computes with the shard, and FSDP gathers for nobody."""
    present = {id(module) for module in model.modules()}
    heirs = {
        id(parameter): (name, module)
        for name, module in model.named_modules()
        for parameter in module._parameters.values()
        if parameter is not None
    }
    converted, replaced, removed = [], [], []
    for unit in units:
        for own in unit.managed:
            if id(own.owner) in present:
                continue
            name, heir = heirs.get(id(own.parameter), ("", None))
            if heir is not None and _is_float8(heir):
                converted.append(f"{unwrapped(name)}.{own.name}")
            elif heir is not None:
                replaced.append(f"{unwrapped(name)}.{own.name}")
            else:
                removed.append(f"{unit.name}: {type(own.owner).__name__}.{own.name}".lstrip(": "))
    if converted:
        message = (
            f"{brief(converted)}: FSDP gathers into the module that Float8Linear replaced, and not "
            "in float8; the new one has the shard alone"
        )
        yield Broken(FSDP_BEFORE_FLOAT8, message, tuple(converted))
    if replaced:
        message = (
            f"{brief(replaced)}: FSDP gathers into the module that was there before; the new one "
            "has the shard alone"
        )
        yield Broken(REPLACED_AFTER_FSDP, message, tuple(replaced))
    if removed:
        message = f"FSDP still shards and gathers {brief(removed)}, which the model has no more"
        yield Broken(FSDP_BEFORE_EP, message, tuple(removed))


def _checkpointed_units(model: nn.Module) -> Iterator[Broken]:
    """Checkpoint wrappers around FSDP units."""
    names = []
    for name, module in model.named_modules():
        inner = _wrapped(module)
        sharded = hasattr(inner, "_get_fsdp_state") or "_fsdp_wrapped_module" in getattr(
            inner, "_modules", ()
        )
        if inner is not None and sharded:
            names.append(unwrapped(name) or "the model")
    if names:
        message = (
            f"{brief(names)}: the wrapper is around the FSDP unit, so that backward recomputes "
            "through FSDP's own hooks"
        )
        yield Broken(FSDP_BEFORE_CHECKPOINTING, message, tuple(names))


def _hooks_lost(model: nn.Module) -> Iterator[Broken]:
    """Float8 modules with a weight that TP sharded and none of the hooks that TP put there."""
    names = [
        unwrapped(name)
        for name, module in model.named_modules()
        if _is_float8(module)
        and "tp" in _mesh_axes(module.weight)
        and not (module._forward_pre_hooks or module._forward_hooks)
    ]
    if names:
        message = (
            f"{brief(names)}: the module that replaced the linear has its sharded weight and not "
            "the hooks by which TP converts inputs and outputs"
        )
        yield Broken(FLOAT8_WITHOUT_HOOKS, message, tuple(names))


def _float8_all_gather(model: nn.Module) -> Iterator[Broken]:
    """Weights that FSDP is to gather in float8 (by a hook of their own) and that TP shards."""
    names = [
        unwrapped(name)
        for name, parameter in model.named_parameters()
        if "tp" in _mesh_axes(parameter)
        and any(hasattr(part, "fsdp_pre_all_gather") for part in _layers(parameter))
    ]
    if names:
        message = f"{brief(names)}: the float8 weight's operators have no sharding rule for DTensor"
        yield Broken(FLOAT8_ALL_GATHER_WITH_TP, message, tuple(names))


def _experts_in_a_block(
    model: nn.Module, units: list[_Unit], cut: Mapping[str, Collection[str]]
) -> Iterator[Broken]:
    """Units that hold experts which EP cut together with parameters of other layers."""
    if not any("ep" in axes for axes in cut.values()):
        return
    paths = {id(module): unwrapped(name) for name, module in model.named_modules()}
    every = [unwrapped(name) for name, _ in model.named_parameters()]
    for unit in units:
        names = [
            f"{paths[id(own.owner)]}.{own.name}" for own in unit.managed if id(own.owner) in paths
        ]
        experts = [name for name in names if "ep" in cut.get(name, ())]
        layer = _routed_layer(experts, [name for name in every if "ep" not in cut.get(name, ())])
        others = [name for name in names if not name.startswith(layer)]
        if experts and others:
            message = (
                f"one FSDP unit, {unit.name or 'the model'}, holds {brief(experts)} and "
                f"{brief(others)}: its reduce-scatter meets the all-to-alls of EP in backward"
            )
            yield Broken(EP_IN_A_BLOCK_UNIT, message, (unit.name or "the model", *experts))


def _routed_layer(experts: list[str], others: list[str]) -> str:
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
