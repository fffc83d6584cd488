"""Kernels of torch's operators, and functions of its other namespaces, replaced and left so."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import torch

from tests.catalogue.torture.fault import AT_THE_END, Effect, Here, kind


def _raise(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("deliberate: a kernel that was left")


#: What would be freed with the candidate, were it not held.
_LIBRARIES: list[torch.library.Library] = []


@kind(Effect.LEAVES, "mm", "add.Tensor", "sum.dim_IntList", "empty_like", at=AT_THE_END)
def kernels_of_operators(here: Here) -> None:
    """Registers a kernel for an operator of torch's that raises."""
    library = torch.library.Library("aten", "IMPL")
    _LIBRARIES.append(library)
    with warnings.catch_warnings(action="ignore"):
        library.impl(here.variant, _raise, "CPU")


@kind(
    Effect.LEAVES,
    *("special.expit", "linalg.vector_norm", "fft.rfft", "nn.init.normal_"),
    *("autograd.graph.save_on_cpu", "utils.data.DataLoader", "testing.assert_close"),
)
def functions_of_namespaces(here: Here) -> None:
    """A function of another of torch's namespaces raises."""
    space, _, name = here.variant.rpartition(".")
    setattr(importlib.import_module(f"torch.{space}"), name, _raise)
