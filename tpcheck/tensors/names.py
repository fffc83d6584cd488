"""Names: of parameters, whatever the candidate was wrapped in; of a tensor in one pass of a case;
of a tensor on disk. Each has one parser, here. Imports no torch.

`torch.compile`, activation checkpointing, FSDP1 and DDP each put a module of their own around the
user's, and its attribute into every name below. The reference knows none of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import total_ordering
from typing import TYPE_CHECKING, NamedTuple

from tpcheck.errors import InvalidArgument

if TYPE_CHECKING:
    from torch import Tensor, nn

#: Before an output's name: its upstream gradient.
UPSTREAM = "d "


class Wrapper(StrEnum):
    """The attribute under which a wrapper holds the user's module."""

    COMPILE = "_orig_mod"  # OptimizedModule
    CHECKPOINTING = "_checkpoint_wrapped_module"  # CheckpointWrapper, OffloadWrapper
    FSDP = "_fsdp_wrapped_module"  # FullyShardedDataParallel, FSDP1


WRAPPERS = frozenset(Wrapper)

#: The attribute under which classes of these names hold the user's module: torch's DDP and its
#: relatives in Megatron-core and apex. A module of one's own may have that name, too.
INNER = "module"
_HOLDERS = frozenset({"DistributedDataParallel", "DataParallel", "Float16Module"})


def holds_another(module: object) -> bool:
    """Whether a module's `module` is the user's."""
    return not _HOLDERS.isdisjoint(kind.__name__ for kind in type(module).__mro__)


def unwrapped(name: str, model: nn.Module) -> str:
    """A name of `model`'s without the levels that wrappers have put into it:
    `blocks.0._checkpoint_wrapped_module.mlp.up.weight` → `blocks.0.mlp.up.weight`."""
    parts = name.split(".")
    if INNER not in parts:
        return ".".join(part for part in parts if part not in WRAPPERS)
    kept: list[str] = []
    owner: nn.Module | None = model
    for part in parts:
        if part not in WRAPPERS and not (part == INNER and holds_another(owner)):
            kept.append(part)
        owner = getattr(owner, "_modules", {}).get(part)
    return ".".join(kept)


def generic(name: str) -> str:
    """`layers.3.mlp` → `layers.*.mlp`."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def parameters_of(
    module: nn.Module, known: Container[str] | None = None
) -> dict[str, nn.Parameter]:
    """Parameters by the reference's names; tied ones under each of theirs.

    Args:
        known: the names that there are, where others are left out.
    """
    named = module.named_parameters(remove_duplicate=False)
    every = {unwrapped(name, module): parameter for name, parameter in named}
    return every if known is None else {n: p for n, p in every.items() if n in known}


def buffers_of(module: nn.Module) -> dict[str, Tensor]:
    """Buffers by the reference's names; one under several names once."""
    return {unwrapped(name, module): b for name, b in module.named_buffers()}


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by the reference's names; tied ones under each of theirs."""
    buffers = dict(module.named_buffers(remove_duplicate=False))
    return {**parameters_of(module), **{unwrapped(name, module): b for name, b in buffers.items()}}


def computed_buffers(module: nn.Module) -> frozenset[str]:
    """Names of the buffers that no checkpoint holds (`register_buffer(…, persistent=False)`): the
    module computes them when it is built. Buffers of wrappers' own are not told apart."""
    return frozenset(
        unwrapped(f"{prefix}.{name}" if prefix else name, module)
        for prefix, owner in module.named_modules(remove_duplicate=False)
        for name in owner._non_persistent_buffers_set
        if owner._buffers.get(name) is not None
    )


# ---- a tensor in one pass


@total_ordering
@dataclass(frozen=True)
class Pass:
    """One forward of a case, and the backward of it: a microbatch of a step of training, or the
    forward after the only step. Passes sort in the order in which they run.

    Args:
        microbatch: its number, from 0; None for the forward after the step.
        step: the number of the step, from 0.
    """

    microbatch: int | None = 0
    step: int = 0

    @property
    def suffix(self) -> str:
        """What it adds to a name: nothing, `@1`, `@step`; from the second step on `@step2`,
        `@step2.1`."""
        if self.microbatch is None:
            return "@step"
        if self.step:
            more = f".{self.microbatch}" if self.microbatch else ""
            return f"@step{self.step + 1}{more}"
        return f"@{self.microbatch}" if self.microbatch else ""

    @classmethod
    def parse(cls, suffix: str) -> Pass | None:
        """The inverse of `suffix`, without its `@`; None of any other text."""
        found = _SUFFIX.fullmatch(suffix)
        if found is None:
            return None
        if suffix == "step":
            return STEP
        of_first, step, microbatch = found.groups()
        if of_first:
            return cls(int(of_first))
        return cls(int(microbatch or 0), int(step) - 1)

    def __lt__(self, other: Pass) -> bool:
        return self._place < other._place

    @property
    def _place(self) -> tuple[int, bool, int]:
        return self.step, self.microbatch is None, self.microbatch or 0


_NUMBER = "[1-9][0-9]*"
_SUFFIX = re.compile(rf"({_NUMBER})|step(?:(?!1\b)({_NUMBER})(?:\.({_NUMBER}))?)?", re.ASCII)


FIRST = Pass(0)
STEP = Pass(None)
#: The name of the norm of all gradients.
NORM = "norm"


@dataclass(frozen=True)
class InPass:
    """A tensor's name in one pass: `x`, `x@1`, `x@step`, `x@step2.1` as text. What belongs to a
    step, as gradients of parameters do, is in the step's first pass."""

    base: str
    at: Pass = FIRST

    def __str__(self) -> str:
        return f"{self.base}{self.at.suffix}"

    @classmethod
    @functools.lru_cache(1 << 16)
    def parse(cls, text: str) -> InPass:
        """The inverse of `str`; a name with another `@` in it keeps that."""
        base, found, suffix = text.rpartition("@")
        at = Pass.parse(suffix) if found else None
        return cls(text) if at is None else cls(base, at)


def check_names(what: str, names: Iterable[str]) -> None:
    """Refuses names that would be read as another pass's.

    Raises:
        InvalidArgument: one ends in `@1` or `@step`, say.
    """
    for name in names:
        if InPass.parse(name).base != name:
            raise InvalidArgument(
                f"the {what} {name!r} ends as tpcheck writes the passes of a case (x@1, x@step); "
                "give it another name"
            )


# ---- a tensor on disk


class Shelf(StrEnum):
    """What a rank's dump holds besides the tensors that are compared, which stand under the
    word of their kind."""

    BORDER = "border"
    LOADED = "loaded"
    DUE = "due"  # what should have been loaded, by the placement of the candidate's own tensor
    UNFINISHED = "unfinished"  # a parameter's gradient as backward left it, before `finalize`
    OVERWRITTEN = "overwritten"


class Key(NamedTuple):
    """A tensor by its kind (or shelf) and name: `param_grad/up.weight` as text."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Key:
        """The inverse of `str`."""
        kind, _, name = text.partition("/")
        return cls(kind, name)
