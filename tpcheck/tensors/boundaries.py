"""Module borders: the tensors that go into and come out of every module, forward and backward.

A `Watch` notes them in the order in which they are computed, on the reference and on the
candidate alike; `localise` compares the two. Runs only where a failing case is examined.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tpcheck.tensors.names import unwrapped
from tpcheck.vocabulary import End, Phase


@dataclass(frozen=True)
class Border:
    """One tensor at one boundary of a module. As text, its `key`; `of` is the one parser.

    Args:
        phase: forward for the tensor itself, backward for its gradient.
        module: the module's qualified name; empty for the outermost.
        call: which call of that module in this pass, from 0.
        side: where it crosses.
        slot: which of the arguments (a position or a keyword), or of the results.
    """

    phase: Phase
    module: str
    call: int
    side: End
    slot: str

    @property
    def key(self) -> str:
        return json.dumps([self.phase, self.module, self.call, self.side, self.slot])

    @classmethod
    def of(cls, key: str) -> Border:
        """The inverse of `key`."""
        phase, module, call, side, slot = json.loads(key)
        return cls(Phase(phase), module, call, End(side), slot)

    @property
    def parent(self) -> str | None:
        """The qualified name of the module around this one; None for the outermost."""
        return self.module.rpartition(".")[0] if self.module else None


class Watch:
    """Notes what crosses the borders of `module`'s modules while it is entered.

    Args:
        module: the outermost module.
        local: tensor → what is kept of it (a DTensor's own part, say).

    A module's input is handed on as a view of itself, so that the gradient noted there is what
    this module alone sends back, without what the same tensor is used for elsewhere. The gradient
    noted at an output is the whole of what the module is given.
    """

    def __init__(self, module: nn.Module, local: Callable[[Tensor], Tensor] = lambda t: t) -> None:
        self.module, self.local = module, local
        self.seen: dict[str, Tensor] = {}  # Border.key → value, in the order of computation
        self._calls: dict[str, int] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> Watch:
        # of a module and its wrappers, which have one name, the innermost is the module itself
        named = self.module.named_modules()
        modules = {unwrapped(name, self.module): module for name, module in named}
        for name, module in modules.items():
            enter, leave = partial(self._enter, name), partial(self._leave, name)
            self._handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            self._handles.append(module.register_forward_hook(leave))
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _enter(self, name: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._calls[name] = self._calls.get(name, -1) + 1
        handed = [self._input(name, str(i), arg) for i, arg in enumerate(args)]
        named = {key: self._input(name, key, arg) for key, arg in kwargs.items()}
        return tuple(handed), named

    def _input(self, name: str, slot: str, given: Any) -> Any:
        if not isinstance(given, Tensor) or not given.is_floating_point():
            return given
        if torch.is_grad_enabled() and given.requires_grad:
            given = given.view_as(given)
        self._note(Border(Phase.FORWARD, name, self._calls[name], End.IN, slot), given)
        return given

    def _leave(self, name: str, module: Any, args: Any, result: Any) -> None:
        for slot, tensor in enumerate(_floats(tree_leaves(result))):
            border = Border(Phase.FORWARD, name, self._calls[name], End.OUT, str(slot))
            self._note(border, tensor)

    def _note(self, border: Border, tensor: Tensor) -> None:
        self._keep(border, tensor)
        if tensor.requires_grad and torch.is_grad_enabled():
            back = replace(border, phase=Phase.BACKWARD)
            tensor.register_hook(partial(self._keep, back))

    def _keep(self, border: Border, tensor: Tensor) -> None:
        # a copy: the candidate may write into it later
        self.seen[border.key] = self.local(tensor).detach().clone()


def _floats(leaves: Iterable[Any]) -> Iterator[Tensor]:
    return (t for t in leaves if isinstance(t, Tensor) and t.is_floating_point())
