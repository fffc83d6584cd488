"""A candidate as it was built, on its rank: are its parallelisms in order?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tpcheck import order, placement
from tpcheck.axes import covered
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.placement import Entry, by_axis, take
from tpcheck.plan.findings import mismatches
from tpcheck.tensors.meshes import axes_in
from tpcheck.tensors.names import tensors_of
from tpcheck.verdict import Mismatch


def disorder(
    module: Any,
    *,
    case: Case,
    rank: int,
    layout: Mapping[str, Entry],
    full: Mapping[str, Tensor],
) -> list[Mismatch]:
    """What the order of parallelisms broke, as evidence of kind `sharding`; empty if nothing.

    Args:
        module: what `build(case, mesh)` returned, before anything was loaded or moved.
        layout: parameter → how it is meant to be placed.
        full: parameter → the whole tensor.

    Raises:
        InvalidArgument: a lazy module, of which nothing is known before a first forward.
    """
    if not isinstance(module, nn.Module):
        return []
    own = tensors_of(module)
    for name, tensor in own.items():
        if is_lazy(tensor):
            raise InvalidArgument(
                f"{name} has no shape before a first forward (a lazy module); give its sizes, or "
                "call it once in build"
            )
    cut = {
        name: _axes(entry, own[name].shape, full[name], case=case, rank=rank)
        for name, entry in layout.items()
        if name in own and name in full
    }
    found = order.marked(module, cut=cut, mesh=case.mesh, axes=partial(_covered, case))
    return mismatches((broken.finding for broken in found), rank)


def _covered(case: Case, mesh: Any) -> list[str]:
    """The axes of a case along which a DTensor's mesh has ranks."""
    return [own for axis in axes_in(mesh, case) if axis is not None for own in covered(axis, case)]


def _axes(entry: Entry, shape: Any, full: Tensor, *, case: Case, rank: int) -> list[str]:
    """The axes along which a parameter is meant to be sharded and is not, by its shape, by hand:
    a module written for its shard has no plan that could have missed it."""
    axes = [axis for axis in case.mesh if placement.is_sharded(entry, case, axis=axis)]
    if "tp" in axes:
        part = take(full, {"tp": by_axis(entry)["tp"]}, case=case, rank=rank)
        if shape == part.shape:
            axes.remove("tp")
    return axes
