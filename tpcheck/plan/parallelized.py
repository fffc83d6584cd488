"""A parallelized model held against what its plan promises: DTensors' placements, ties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tpcheck.errors import InvalidArgument
from tpcheck.figures.plan import Finding
from tpcheck.figures.plan_causes import Misplaced, Place, TieLost, Unreached
from tpcheck.placement import Replicate, Shard
from tpcheck.plan.followed import Promise
from tpcheck.plan.match import Tree, match, wrapper_on
from tpcheck.tensors.live import is_dtensor, local
from tpcheck.tensors.meshes import Axes
from tpcheck.tensors.names import generic
from tpcheck.vocabulary import Code

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def degree_of(mesh: DeviceMesh) -> int:
    """Size of the TP axis of a mesh: the axis "tp", or the only one.

    Raises:
        InvalidArgument: several axes, and none is called "tp".
    """
    return mesh.size(axis_of(mesh))


def axis_of(mesh: DeviceMesh) -> int:
    """Which axis of a mesh that is. Errors as above."""
    names = mesh.mesh_dim_names or ()
    if "tp" in names:
        return names.index("tp")
    if mesh.ndim != 1:
        raise InvalidArgument(_without_tp(names, mesh.ndim))
    return 0


def _without_tp(names: Sequence[str], count: int) -> str:
    """What to say of a mesh of several axes, none of which is called "tp"."""
    if not names:
        return f'mesh has {count} axes without names; give it mesh_dim_names=…, one of them "tp"'
    each = " or ".join(f'mesh["{name}"]' for name in names)
    return (
        f'mesh has the axes {tuple(names)}, and none is "tp"; give {each}, whichever is the axis '
        "of tensor parallelism"
    )


def held_bytes(tensor: Tensor) -> int:
    """Bytes of this rank's part."""
    return full_bytes(local(tensor))


def full_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@dataclass(frozen=True)
class Promised:
    """What ranks are told of a plan: name → (key, placement), and the names that are one tensor.

    Plain data: ranks need neither the plan's styles nor the unsharded model.
    """

    placed: Mapping[str, tuple[str, Shard | Replicate]]
    tied: tuple[tuple[str, ...], ...] = ()


def promised(promise: Promise) -> Promised:
    """The part of a promise that a parallelized model can be held against."""
    placed = {name: (own.key, own.placement) for name, own in promise.placed.items()}
    return Promised(placed, tuple(promise.tied))


def findings(
    model: nn.Module,
    expected: Promised,
    *,
    tp: int,
    axes: Axes,
    full: Mapping[str, Tensor] | None = None,
) -> list[Finding]:
    """Where a parallelized model is not what its plan promises. Names are those without
    wrappers: a model may be wrapped after the plan was applied.

    Args:
        tp: the degree; with 1 nothing can be split.
        axes: of the model's meshes, what their axes are.
        full: the unsharded parameters, where known: a plain tensor of another shape is a shard
            that no DTensor describes, and is not judged here.
    """
    tree = Tree(model, unwrapped=True, axes=axes)
    placed = {
        name: promised
        for name, promised in expected.placed.items()
        if tp > 1
        and not (full and name in full and _by_hand(tree.parameters.get(name), full[name]))
    }
    return [*_split_ties(tree, expected), *_misplaced(tree, Tree(model), placed)]


def _by_hand(tensor: Tensor | None, full: Tensor) -> bool:
    """Whether a plain tensor is a shard that was made without DTensor."""
    return tensor is not None and not is_dtensor(tensor) and tensor.shape != full.shape


def _misplaced(
    tree: Tree, raw: Tree, expected: Mapping[str, tuple[str, Shard | Replicate]]
) -> Iterator[Finding]:
    kinds: dict[tuple[Code, Misplaced | Unreached, str, str], list[str]] = {}
    for name, (key, promised) in expected.items():
        tensor = tree.parameters.get(name)
        if tensor is None or _on_one_rank(tensor):
            continue
        place = tree.placement(name)
        if place == promised or (place is None and isinstance(promised, Replicate)):
            continue
        code, cause = _cause(raw, key, place, promised)
        kinds.setdefault((code, cause, key, generic(name)), []).append(name)
    for (code, cause, key, _), names in kinds.items():
        yield Finding(code, cause, tuple(names), key)


def _cause(
    raw: Tree, key: str, place: Place, promised: Shard | Replicate
) -> tuple[Code, Misplaced | Unreached]:
    if isinstance(place, Shard):
        return Code.WRONG_PLACEMENT, Misplaced(place, promised)
    matched = match(raw, key, parameters=True)
    if matched.hits:
        return Code.PARAMETER_NOT_SHARDED, Misplaced(place, promised)
    wrapper = wrapper_on(raw, matched)
    return Code.PLAN_ENTRY_UNMATCHED, Unreached(place, promised, wrapper)


def _on_one_rank(tensor: Tensor) -> bool:
    """Whether a DTensor's TP axis has one rank, on which nothing can be split."""
    mesh: Any = getattr(tensor, "device_mesh", None)
    if mesh is None or (mesh.ndim > 1 and "tp" not in (mesh.mesh_dim_names or ())):
        return False
    return degree_of(mesh) == 1


def _split_ties(tree: Tree, expected: Promised) -> Iterator[Finding]:
    for group in expected.tied:
        tensors = {name: tree.parameters[name] for name in group if name in tree.parameters}
        if len({id(tensor) for tensor in tensors.values()}) > 1:
            places = tuple((name, tree.placement(name)) for name in tensors)
            yield Finding(Code.TIED_WEIGHTS_SPLIT, TieLost(places), group)
