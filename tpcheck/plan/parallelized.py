"""A parallelized model held against what its plan promises: DTensors' placements, ties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tpcheck.errors import InvalidArgument
from tpcheck.placement import Replicate, Shard
from tpcheck.plan.findings import Finding, brief, generic, ordered
from tpcheck.plan.followed import Promise, text
from tpcheck.plan.match import Tree, match, wrapper_on

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def degree_of(mesh: DeviceMesh) -> int:
    """Size of the TP axis of a mesh: the axis "tp", or the only one.

    Raises:
        InvalidArgument: several axes, and none is called "tp".
    """
    return mesh.size(_axis(mesh))


def _axis(mesh: DeviceMesh) -> int:
    names = mesh.mesh_dim_names or ()
    if "tp" in names:
        return names.index("tp")
    if mesh.ndim != 1:
        raise InvalidArgument(f'mesh has the axes {names}, and none is "tp"; give mesh["tp"]')
    return 0


def placement(tensor: Tensor, axis: str = "tp") -> Shard | Replicate | None:
    """The placement of a DTensor on the TP axis; None for a plain tensor."""
    mesh: Any = getattr(tensor, "device_mesh", None)
    if mesh is None:
        return None
    names = mesh.mesh_dim_names or (axis,)
    if axis not in names:
        return Replicate()
    own = tensor.placements[names.index(axis)]  # type: ignore[attr-defined]
    return Shard(own.dim) if hasattr(own, "dim") else Replicate()


def where(tensor: Tensor, mesh: DeviceMesh) -> str:
    """A parameter's place in words: `Shard(0)`, `Replicate()`, or `whole` for a plain tensor."""
    found = placement(tensor)
    return text(found) if found else "whole"


def held_bytes(tensor: Tensor) -> int:
    """Bytes of this rank's part."""
    own = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return own.numel() * own.element_size()


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
    placed = {name: (found.key, found.placement) for name, found in promise.placed.items()}
    return Promised(placed, tuple(promise.tied))


def findings(
    model: nn.Module, expected: Promised, full: Mapping[str, Tensor] | None = None
) -> list[Finding]:
    """Where a parallelized model is not what its plan promises. Names are those without
    wrappers: a model may be wrapped after the plan was applied.

    Args:
        full: the unsharded parameters, where known: a plain tensor of another shape is a shard
            that no DTensor describes, and is not judged here.
    """
    tree = Tree(model, unwrapped=True)
    raw = Tree(model)
    by_hand = {
        name
        for name, tensor in tree.parameters.items()
        if full and name in full and placement(tensor) is None and tensor.shape != full[name].shape
    }
    placed = {name: found for name, found in expected.placed.items() if name not in by_hand}
    return ordered([*_split_ties(tree, expected), *_misplaced(tree, raw, placed)])


def _misplaced(
    tree: Tree, raw: Tree, expected: Mapping[str, tuple[str, Shard | Replicate]]
) -> Iterator[Finding]:
    kinds: dict[tuple[str, str, str, str], list[str]] = {}
    for name, (key, wanted) in expected.items():
        tensor = tree.parameters.get(name)
        if tensor is None or _on_one_rank(tensor):
            continue
        own = placement(tensor)
        if own == wanted or (own is None and isinstance(wanted, Replicate)):
            continue
        has = text(own) if own else "whole"
        if isinstance(own, Shard):
            code, message = "wrong-placement", f"{has}, {key!r} promises {text(wanted)}"
        else:
            code, message = "parameter-not-sharded", f"{has}, {key!r} promises {text(wanted)}"
            found = match(raw, key, parameters=True)
            if not found.hits:
                code = "plan-entry-unmatched"
                wrapper = wrapper_on(raw, found)
                behind = f" (behind {wrapper}: apply the plan first)" if wrapper else ""
                message += f", which matches nothing{behind}"
        kinds.setdefault((code, message, key, generic(name)), []).append(name)
    for (code, message, key, _), names in kinds.items():
        yield Finding(code, f"{brief(names)}: {message}", tuple(names), key)


def _on_one_rank(tensor: Tensor) -> bool:
    """Whether a DTensor's TP axis has one rank, on which nothing can be split."""
    mesh: Any = getattr(tensor, "device_mesh", None)
    if mesh is None or (mesh.ndim > 1 and "tp" not in (mesh.mesh_dim_names or ())):
        return False
    return degree_of(mesh) == 1


def _split_ties(tree: Tree, expected: Promised) -> Iterator[Finding]:
    for group in expected.tied:
        tensors = [tree.parameters[name] for name in group if name in tree.parameters]
        if len({id(tensor) for tensor in tensors}) > 1:
            places = (placement(tensor) for tensor in tensors)
            how = ", ".join(
                f"{name}: {text(own) if own else 'whole'}"
                for name, own in zip(group, places, strict=True)
            )
            message = f"{how}; they are one tensor before, and {len(tensors)} after"
            yield Finding("tied-weights-split", message, group)
