"""Operators over lists of tensors (`torch._foreach_*`), each as one operator of all their numbers:
what optimizers step all parameters by, where their Python costs most."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tpcheck.tensors.lanes import joined, parted, write

_PREFIX = "_foreach_"

#: Those of one number of each list, by the function of one tensor.
_OF_NUMBERS: dict[str, Callable[..., Tensor]] = {
    "abs": torch.abs,
    "add": torch.add,
    "addcdiv": lambda x, a, b, value=1: torch.addcdiv(x, a, b, value=value),
    "addcmul": lambda x, a, b, value=1: torch.addcmul(x, a, b, value=value),
    "clamp_max": torch.clamp_max,
    "clamp_min": torch.clamp_min,
    "div": torch.div,
    "exp": torch.exp,
    "lerp": torch.lerp,
    "log": torch.log,
    "maximum": lambda x, y: (torch.maximum if isinstance(y, Tensor) else torch.clamp_min)(x, y),
    "minimum": lambda x, y: (torch.minimum if isinstance(y, Tensor) else torch.clamp_max)(x, y),
    "mul": torch.mul,
    "neg": torch.neg,
    "pow": torch.pow,
    "reciprocal": torch.reciprocal,
    "rsqrt": torch.rsqrt,
    "sign": torch.sign,
    "sqrt": torch.sqrt,
    "sub": torch.sub,
}
#: Those that are taken tensor by tensor.
_OF_TENSORS: dict[str, Callable[..., Tensor]] = {
    "norm": lambda x, order=2, dtype=None: torch.linalg.vector_norm(x, order, dtype=dtype),
}
#: torch's optimizers whose steps by lists are the same formulas, operator by operator.
_STEPPED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


def in_parts(optimizer: Any) -> Any:
    """One of torch's, to step by operators that are known, and not by one for all of its formula
    (`fused=True`): how far that rounds could not be told. torch 2.13's of SGD leaves numbers of two
    bytes as they are, but for those after the last sixteen."""
    for group in optimizer.param_groups if isinstance(optimizer, torch.optim.Optimizer) else ():
        if group.get("fused"):
            group["fused"] = False
    return optimizer


def in_lists(optimizer: Any) -> Any:
    """One of torch's own, to step by operators over lists where nobody said otherwise."""
    for group in optimizer.param_groups if type(optimizer) in _STEPPED else ():
        if group["foreach"] is None and not group["fused"] and _steps_by_lists(group):
            group["foreach"] = True
    return optimizer


def _steps_by_lists(group: Mapping[str, Any]) -> bool:
    """Whether torch takes its options there: rates and betas that are tensors it refuses."""
    options = tree_leaves({name: value for name, value in group.items() if name != "params"})
    return not group["differentiable"] and not any(isinstance(one, Tensor) for one in options)


@functools.cache
def is_of_lists(func: Any) -> bool:
    """Whether it is an operator over lists that is known here; a number to the power of each is a
    counter's."""
    known = _base(func) in _OF_NUMBERS or _base(func) in _OF_TENSORS
    return known and func._overloadname != "ScalarAndTensor"


def _base(func: Any) -> str:
    name = func.overloadpacket.__name__
    return name.removeprefix(_PREFIX).removesuffix("_") if name.startswith(_PREFIX) else ""


def run(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], mode: AbstractContextManager[Any]
) -> list[Tensor] | None:
    """The operator as one of all numbers of its lists, or tensor by tensor where they differ in
    more than their shapes.

    Args:
        mode: sees what runs in its place.

    Raises:
        Apart: as `write` does.
    """
    first, base = args[0], _base(func)
    if func._schema.arguments[-1].name == "scalars" and isinstance(args[-1], Tensor):
        args = [*args[:-1], args[-1].tolist()]  # a number for each
    one = {**_OF_NUMBERS, **_OF_TENSORS}[base]
    if _counts(func, args):
        return func(*args, **kwargs)
    whole = _whole(args) if base in _OF_NUMBERS else None
    with mode:
        if whole is not None:
            made = [one(*whole, **kwargs)]
        else:
            each = ([_of_tensor(value, i) for value in args] for i in range(len(first)))
            made = [one(*own, **kwargs) for own in each]
    parts = made if whole is None else parted(made[0], first)
    if not func._schema.is_mutable:
        return parts
    for tensor, own in zip(first, parts, strict=True):
        write(tensor, own)
    return None


def _counts(func: Any, args: Sequence[Any]) -> bool:
    """Whether counters count, as an optimizer's steps are: nothing rounds."""
    if _base(func) != "add" or any(tensor.ndim for tensor in args[0]):
        return False
    by = args[1]
    one = isinstance(by, (int, float)) or (type(by) is Tensor and by.numel() == 1)
    return one and float(by).is_integer()


def _whole(args: Sequence[Any]) -> list[Any] | None:
    """Each list as one tensor, or as the number that all of it is; None where that can't be."""
    like, found = [_form(tensor) for tensor in args[0]], []
    if len({dtype for dtype, *_ in like}) > 1:
        return None
    if any(layout is not torch.strided for *_, layout in like):  # sparse gradients
        return None
    for value in args:
        if not isinstance(value, (list, tuple)):
            found.append(value)
        elif isinstance(value[0], Tensor):
            if [_form(tensor) for tensor in value] != like:
                return None
            found.append(joined(value))
        elif any(number != value[0] for number in value):
            return None
        else:
            found.append(value[0])
    return found


def _form(tensor: Tensor) -> tuple[torch.dtype, torch.Size, torch.layout]:
    return tensor.dtype, tensor.shape, tensor.layout


def _of_tensor(value: Any, index: int) -> Any:
    return value[index] if isinstance(value, (list, tuple)) else value
