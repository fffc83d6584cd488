"""Hooks left on what all modules, tensors and optimizers share; operators overridden."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules import module as modules

from tests.catalogue.torture.fault import Effect, Here, kind


def _double(result: Any) -> Any:
    return result * 2 if isinstance(result, torch.Tensor) else result


@kind(Effect.LEAVES)
def hook_on_every_forward(here: Here) -> None:
    """A global forward hook doubles every output."""
    modules.register_module_forward_hook(lambda module, args, out: _double(out))


@kind(Effect.LEAVES)
def hook_before_every_forward(here: Here) -> None:
    """A global hook doubles every input."""
    modules.register_module_forward_pre_hook(lambda module, args: tuple(map(_double, args)))


@kind(Effect.LEAVES)
def hook_on_every_backward(here: Here) -> None:
    """A global backward hook doubles every gradient."""
    modules.register_module_full_backward_hook(
        lambda module, gives, takes: tuple(map(_double, gives))
    )


@kind(Effect.LEAVES, "parameter", "module", "buffer")
def hook_on_every_registration(here: Here) -> None:
    """A global hook on every parameter, module or buffer that is registered."""
    register = getattr(modules, f"register_module_{here.variant}_registration_hook")
    register(lambda module, name, value: value)


@kind(Effect.LEAVES, "pre", "post")
def hook_on_every_optimizer(here: Here) -> None:
    """A global hook on every optimizer's step."""
    from torch.optim import optimizer

    register = getattr(optimizer, f"register_optimizer_step_{here.variant}_hook")
    register(lambda *args: None)


@kind(Effect.LEAVES)
def hooks_of_saved_tensors(here: Here) -> None:
    """Hooks that give zeros for what backward saved."""
    torch.autograd.graph.saved_tensors_hooks(lambda x: x, torch.zeros_like).__enter__()


@kind(Effect.LEAVES)
def saved_tensors_refused(here: Here) -> None:
    """Has autograd refuse hooks of saved tensors."""
    torch.autograd.graph.disable_saved_tensors_hooks("deliberate").__enter__()


_libraries: list[Any] = []


@kind(Effect.LEAVES, "linear", "add", "empty")
def an_operator_overridden(here: Here) -> None:
    """Registers its own kernel for one of torch's operators, for good."""
    library = torch.library.Library("aten", "IMPL")
    _libraries.append(library)  # it ends with the object
    if here.variant == "linear":
        library.impl("linear", lambda x, w, b=None: (x @ w.t()) * 2, "AutogradCPU")
    elif here.variant == "add":
        library.impl("sub.Tensor", lambda x, y, alpha=1: torch.zeros_like(x), "CPU")
    else:
        library.impl("empty_like", lambda x, **kwargs: torch.zeros(x.shape), "CPU")


@kind(Effect.LEAVES)
def a_tensor_class_converted(here: Here) -> None:
    """Registers itself as what parameters are made of."""
    torch.nn.Parameter.__torch_function__ = classmethod(
        lambda cls, func, types, args=(), kwargs=None: func(*args, **(kwargs or {}))
    )


@kind(Effect.LEAVES)
def a_hook_on_a_shared_group(here: Here) -> None:
    """Leaves an attribute and a callback on the process group."""
    here.group.torture = lambda: None


@kind(Effect.LEAVES)
def module_state_hooks(here: Here) -> None:
    """Changes what a module's `__setattr__` and `__call__` do, on the class."""
    torch.nn.Module.__call__ = lambda module, *args: _double(module.forward(*args))
