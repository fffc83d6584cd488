"""What is done with a model besides training all of it: by the case alone, so that the reference
and the ranks do the same."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from tpcheck.case import Case
from tpcheck.tensors.names import parameters_of

#: The modes in which parameters take no gradient.
FREEZING = ("frozen", "all-frozen")


def enter(case: Case, module: Any, frozen: Collection[str] | None = None) -> None:
    """Puts a module into the case's mode.

    Args:
        frozen: names of the parameters that take no gradient; by default they are chosen.
    """
    if not isinstance(module, nn.Module):
        return
    if case.mode == "eval":
        module.eval()
    if case.mode not in FREEZING:
        return
    names = _chosen(case, module) if frozen is None else frozen
    for name, parameter in parameters_of(module).items():
        if name in names:
            parameter.requires_grad_(False)


def frozen_in(module: Any) -> frozenset[str]:
    """Names of the parameters of a module, in the case's mode, which take no gradient."""
    if not isinstance(module, nn.Module):
        return frozenset()
    return frozenset(name for name, p in parameters_of(module).items() if not p.requires_grad)


def _chosen(case: Case, module: nn.Module) -> frozenset[str]:
    """In a case of "frozen" about half of the parameters, by their names and the seed, and never
    none; of "all-frozen" all. Tied ones are one."""
    names: dict[int, list[str]] = {}
    for name, parameter in parameters_of(module).items():
        if parameter.requires_grad:
            names.setdefault(id(parameter), []).append(name)
    drawn = {key: _number(case, own[0]) for key, own in names.items()}
    chosen = {key for key, number in drawn.items() if case.mode == "all-frozen" or number < 128}
    if drawn and not chosen:
        chosen = {min(drawn, key=drawn.__getitem__)}
    return frozenset(name for key in chosen for name in names[key])


def _number(case: Case, name: str) -> int:
    """Below 256. Of a checksum such as CRC the bits of two names of one length would be equal for
    all seeds, or for none."""
    return hashlib.sha256(f"{case.seed} frozen {name}".encode()).digest()[0]


@contextmanager
def inference(module: Any) -> Iterator[None]:
    """The module is in eval mode, and nothing takes a gradient; afterwards each part is in the mode
    that it was in."""
    before: dict[nn.Module, bool] = {}
    if isinstance(module, nn.Module):
        before = {part: part.training for part in module.modules()}
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in before.items():
            part.training = mode
