"""The candidate in the case's dtype and on the rank's device, as `Module.to` makes it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.errors import InvalidArgument
from tpcheck.tensors.forms import convert_freed, dtype_name
from tpcheck.tensors.names import tensors_of


def convert(module: Any, device: torch.device | str, dtype: torch.dtype) -> None:
    """Converts what `module` registers; what is not a module stays.

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
    ddp = [m for m in module.modules() if isinstance(m, nn.parallel.DistributedDataParallel)]
    within = {id(parameter) for one in ddp for parameter in one.parameters()}
    for name, tensor in own.items():
        if not tensor.is_floating_point() or not (tensor.requires_grad and tensor.is_leaf):
            continue
        if tensor.dtype == dtype and (to is None or tensor.device == to):
            continue
        # torch's DDP has them where none can be seen, others in Python
        if id(tensor) in within or (type(tensor) is nn.Parameter and _has_hooks(tensor)):
            held, due = (dtype_name(tensor.dtype), dtype_name(dtype))
            if held == due:
                held, due = str(tensor.device), str(device)
            raise InvalidArgument(
                f"{name} is {held} where the case is {due}: to convert it loses what hangs on how "
                "its gradient is accumulated, as DistributedDataParallel's all-reduce does; in "
                "build, before that, convert the module, `.to(getattr(torch, case.dtype))`"
            )
    convert_freed(own.values(), dtype)
    module.to(device=to, dtype=dtype)


def _has_hooks(leaf: Tensor) -> bool:
    """Whether Python has hooks on the node that accumulates its gradient. The node is another one
    each time unless somebody holds it."""
    with torch.enable_grad():
        node = leaf.view_as(leaf).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    own = node.register_hook(lambda *_: None)  # type: ignore[union-attr]
    hooks = own.hooks_dict_ref() or ()
    found = len(hooks) > 1
    own.remove()
    return found
