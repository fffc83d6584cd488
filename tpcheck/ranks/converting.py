"""The candidate in the case's dtype and on the rank's device, as `Module.to` makes it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tpcheck.errors import InvalidArgument
from tpcheck.tensors.forms import convert_freed, dtype_name
from tpcheck.tensors.names import tensors_of


def convert(module: Any, device: torch.device | str, dtype: torch.dtype) -> None:
    """Converts what `module` registers; what is not a module stays, and so does one that has
    nothing to convert.

    Raises:
        InvalidArgument: a hook on how a parameter's gradient is accumulated, which is gone with the
            dtype or the device that the parameter had.
    """
    if not isinstance(module, nn.Module):
        return
    # one without memory gets some from its own loader
    own = tensors_of(module)
    empty = any(tensor.is_meta for tensor in own.values())
    to = None if empty else torch.device(device)
    changes = {name for name, tensor in own.items() if _changes(tensor, to, dtype)}
    if not changes:
        return
    ddp = [m for m in module.modules() if isinstance(m, nn.parallel.DistributedDataParallel)]
    within = {id(parameter) for one in ddp for parameter in one.parameters()}
    for name, tensor in own.items():
        swapped = is_traceable_wrapper_subclass(tensor)  # whether it changes or not
        if not (tensor.requires_grad and tensor.is_leaf) or not (swapped or name in changes):
            continue
        # torch's DDP has them where none can be seen, others in Python
        plain = swapped or type(tensor) is nn.Parameter
        if id(tensor) in within or (plain and _has_hooks(tensor)):
            other = name if name in changes else min(changes)
            held, due = (dtype_name(own[other].dtype), dtype_name(dtype))
            if held == due:
                held, due = str(own[other].device), str(device)
            loses = "it" if other == name else f"the module {name}"
            raise InvalidArgument(
                f"{other} is {held} where the case is {due}: to convert {loses} loses what hangs "
                "on how its gradient is accumulated, as DistributedDataParallel's all-reduce does; "
                "in build, before that, convert the module, `.to(getattr(torch, case.dtype))`"
            )
    convert_freed(own.values(), dtype)
    module.to(device=to, dtype=dtype)
    for tensor in tensors_of(module).values():
        if is_traceable_wrapper_subclass(tensor):
            _hang_anew(tensor)


def _changes(tensor: Tensor, to: torch.device | None, dtype: torch.dtype) -> bool:
    """Whether `Module.to` makes another of it."""
    of_dtype = tensor.is_floating_point() or tensor.is_complex()
    return (of_dtype and tensor.dtype != dtype) or (to is not None and tensor.device != to)


def _hang_anew(tensor: Tensor) -> None:
    """The hooks on a tensor's gradient, as of a DTensor: `Module.to` puts another one behind it,
    and leaves them where nothing runs them."""
    for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        if getattr(tensor, hooks, None):
            setattr(tensor, hooks, getattr(tensor, hooks))


def _has_hooks(leaf: Tensor) -> bool:
    """Whether Python has hooks on the node that accumulates its gradient. The node is another one
    each time unless somebody holds it."""
    with torch.enable_grad(), torch._C._DisableTorchDispatch():
        node = leaf.view_as(leaf).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    own = node.register_hook(lambda *_: None)  # type: ignore[union-attr]
    hooks = own.hooks_dict_ref() or ()
    found = len(hooks) > 1
    own.remove()
    return found
