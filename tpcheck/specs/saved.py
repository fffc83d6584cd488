"""How much a rank may keep for backward: what the reference keeps of the rank's own size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tpcheck.case import Case
from tpcheck.specs import reference
from tpcheck.tensors.draw import torch_dtype


def saved_by_a_rank(
    case: Case, part: Callable[[str], nn.Module], sequence_parallel: bool
) -> int | None:
    """What `part(norm)`, the reference with one rank's heads or columns, keeps for backward; under
    SP the norm in front sees one rank's part of the sequence alone. None for inputs that are views
    of something larger, whose storages say nothing, and under dropout, whose masks are kept, too.
    """
    if case.memory != "contiguous" or case.get("dropout"):
        return None
    batch, seq, hidden = case["batch"], case["seq"], case["hidden"]
    dtype = torch_dtype(case)
    inside = part("none" if sequence_parallel else case["norm"]).to(dtype)
    kept = kept_for_backward(inside, torch.zeros(batch, seq, hidden, dtype=dtype))
    norm = reference.build_norm(case["norm"], hidden) if sequence_parallel else None
    if norm is not None:
        own = torch.zeros(batch, seq // case.tp, hidden, dtype=dtype)
        kept += kept_for_backward(norm.to(dtype), own)
    return kept


def kept_for_backward(module: nn.Module, x: Tensor) -> int:
    """Elements of the distinct storages that autograd keeps for the backward of `module(x)`,
    besides parameters; what was cast from a parameter counts, as it does on a rank."""
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, tuple[Tensor, int]] = {}  # the tensor too: its address must not be used again

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        alone = tensor.detach()  # its history leads back here: a circle that is never freed
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (alone, storage.nbytes() // tensor.element_size())
        return alone

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = module(x.requires_grad_())
    del y
    return sum(elements for _, elements in kept.values())
