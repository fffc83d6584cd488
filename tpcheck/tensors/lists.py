"""Operators over lists of tensors (`torch._foreach_*`), each as one operator of all their numbers:
what optimizers step all parameters by, where their Python costs most."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from tpcheck.tensors.lanes import joined, parted, write

_PREFIX = "_foreach_"

#: Those of one number of each list, by the function of one tensor.
_OF_NUMBERS: dict[str, Callable[..., Tensor]] = {
    "abs": torch.abs,
    "add": torch.add,
    "addcdiv": lambda x, a, b, value=1: torch.addcdiv(x, a, b, value=value),
    "addcmul": lambda x, a, b, value=1: torch.addcmul(x, a, b, value=value),
    "div": torch.div,
    "lerp": torch.lerp,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": torch.mul,
    "neg": torch.neg,
    "reciprocal": torch.reciprocal,
    "sign": torch.sign,
    "sqrt": torch.sqrt,
    "sub": torch.sub,
}


def in_lists(optimizer: Any) -> Any:
    """One of torch's own, to step by operators over lists where it can and nobody said otherwise:
    the same formulas."""
    for group in optimizer.param_groups if isinstance(optimizer, torch.optim.Optimizer) else ():
        if "foreach" in group and group["foreach"] is None:
            group["foreach"] = True
    return optimizer


@functools.cache
def is_of_lists(func: Any) -> bool:
    """Whether it is an operator of one number of each list, that is known here."""
    return _base(func) in _OF_NUMBERS


def _base(func: Any) -> str | None:
    name = func.overloadpacket.__name__
    return name.removeprefix(_PREFIX).removesuffix("_") if name.startswith(_PREFIX) else None


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
    first, of_tensors = args[0], _OF_NUMBERS[_base(func) or ""]
    if _counts(func, args):
        return func(*args, **kwargs)
    whole = _whole(args)
    with mode:
        if whole is not None:
            made = [of_tensors(*whole, **kwargs)]
        else:
            each = ([_of_tensor(value, i) for value in args] for i in range(len(first)))
            made = [of_tensors(*own, **kwargs) for own in each]
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
    if len({dtype for dtype, _ in like}) > 1:
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


def _form(tensor: Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape


def _of_tensor(value: Any, index: int) -> Any:
    return value[index] if isinstance(value, (list, tuple)) else value
