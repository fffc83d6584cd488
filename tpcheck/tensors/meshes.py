"""What the axes of a mesh are: by their own names, as a case has them, or as one mesh says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from tpcheck.axes import axis_of
from tpcheck.case import Case

#: Of a mesh, what each of its axes is; None of one that is none.
Axes = Callable[[Any], Sequence[str | None]]


def axes_of(mesh: Any) -> tuple[str, ...]:
    """The names of a mesh's axes; of a mesh without names, the first one is taken for "tp"."""
    return mesh.mesh_dim_names or ("tp", *map(str, range(1, mesh.ndim)))


def named(mesh: Any) -> tuple[str, ...]:
    """The names of a mesh's axes; nothing of a mesh without names."""
    return mesh.mesh_dim_names or ()


def axes_in(mesh: Any, case: Case) -> list[str | None]:
    """The axes of a DTensor's mesh as a case has them; None of one with a single rank."""
    known, of = _KNOWN.setdefault(mesh, {}), tuple(case.mesh.items())
    if of not in known:
        known[of] = _axes_in(mesh, case)
    return known[of]


#: Mesh → axes of a case → those of the mesh. To ask a mesh for its ranks takes a while.
_KNOWN: WeakKeyDictionary[Any, dict[Any, list[str | None]]] = WeakKeyDictionary()


def _axes_in(mesh: Any, case: Case) -> list[str | None]:
    names, along = axes_of(mesh), _along(mesh)
    if along is None:
        return list(names)
    return [axis_of(name, ranks, case) for name, ranks in zip(names, along, strict=True)]


def of_size(tp: int) -> Axes:
    """Names of any mesh's axes, where as many ranks along one axis are those of tp."""
    return lambda mesh: ["tp" if size == tp else None for size in mesh.shape]


def beside(mesh: Any, index: int) -> Axes:
    """Names of any mesh's axes, where the ranks along one axis of this mesh are those of tp."""
    every = _along(mesh)
    if every is None:
        return axes_of
    own = sorted(every[index])

    @cache
    def axes(of: Any) -> list[str | None]:
        found: list[str | None] = []
        for name, ranks in zip(axes_of(of), _along(of) or (), strict=False):
            other = f"{name}'" if name == "tp" else name
            found.append("tp" if sorted(ranks) == own else other)
        return found or list(axes_of(of))

    return axes


def _along(mesh: Any) -> list[list[int]] | None:
    """Of each axis the ranks along it, this one among them; None where it has no place in the
    mesh."""
    at = mesh.get_coordinate()
    if at is None:
        return None
    grid = mesh.mesh
    return [
        grid[tuple(slice(None) if j == i else k for j, k in enumerate(at))].tolist()
        for i in range(mesh.ndim)
    ]
