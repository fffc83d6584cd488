"""What autograd saves for backward, and whether it is still the same when backward asks for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tpcheck.comms import callsite
from tpcheck.tensors.digest import fingerprint

#: What operators of higher order, as `torch.cond`, are traced with, whatever compiles.
TRACED = (FakeTensor, FunctionalTensor)


class Saved:
    """The tensors that autograd has saved while `watch` was on: kept alive, so that the address of
    none of them is used again."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.overwritten: set[str] = set()  # where something was saved that changed afterwards

    def watch(self, module: Any = None, *, bits: bool = False) -> Any:
        """A context in which every tensor saved for backward is noted; with `bits` also whether it
        is still the same when backward asks for it. Not of the running statistics of a module's
        norms, which each forward moves, and whose backward does not read them."""
        moves = _running(module) if bits else set()

        def pack(tensor: Tensor) -> tuple[Tensor, str, str]:
            if TracingContext.try_get() is not None or isinstance(tensor, TRACED):
                return tensor, "", ""  # what a compiler traces has no memory yet
            alone = tensor.detach()  # its history leads back here: a circle that is never freed
            self.tensors += _plain(alone)
            if not bits or tensor.data_ptr() in moves:
                return alone, "", ""
            return alone, _bits(tensor), callsite.line()

        def unpack(kept: tuple[Tensor, str, str]) -> Tensor:
            tensor, then, where = kept
            if then and _bits(tensor) != then:
                self.overwritten.add(where)
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    def holds(self, tensors: list[Tensor]) -> bool:
        """Whether one of `tensors` shares its storage with one that is saved."""
        kept = {t.untyped_storage().data_ptr() for t in self.tensors if t.numel()} - {0}  # 0: freed
        return any(t.untyped_storage().data_ptr() in kept for t in tensors if t.numel())

    def elements(self, *, besides: set[int]) -> int:
        """Elements of the distinct storages, but for those at the addresses `besides`."""
        sizes = {
            t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() // t.element_size()
            for t in self.tensors
        }
        return sum(n for storage, n in sizes.items() if storage not in besides)


def _running(module: Any) -> set[int]:
    """Where the running statistics of its norms are that are made of each batch anew."""
    norms = module.modules() if isinstance(module, nn.Module) else ()
    each = (m for m in norms if isinstance(m, _NormBase) and m.training)
    kept = (t for m in each for t in (m.running_mean, m.running_var) if type(t) is Tensor)
    return {t.data_ptr() for t in kept}


def _plain(tensor: Tensor) -> list[Tensor]:
    """The tensors inside a wrapper such as a DTensor, which has no storage of its own."""
    if not is_traceable_wrapper_subclass(tensor):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    parts = [getattr(tensor, name) for name in names]  # of a DTensor the mesh is among them
    return [inner for part in parts if isinstance(part, Tensor) for inner in _plain(part)]


def _bits(tensor: Tensor) -> str:
    """A digest of a plain tensor; nothing of a subclass, whose bits are not its own."""
    return fingerprint(tensor) if type(tensor) in (Tensor, torch.nn.Parameter) else ""
