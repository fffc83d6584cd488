"""What candidates return that is not what they should."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.catalogue.torture.fault import (
    ANY,
    FAIL,
    Effect,
    Here,
    Place,
    Replace,
    kind,
)

_BOTH = (Place.SUMMED, Place.NODE)


@kind(Effect.SPOILS, at=(*_BOTH, Place.BUILD))
def nothing(here: Here) -> Replace:
    """None."""
    return Replace(None)


@kind(Effect.SPOILS, 3, "text", b"bytes", [1, 2], {}, (), object, at=(Place.SUMMED, Place.BUILD))
def another_type(here: Here) -> Replace:
    """A number, a text, a list, a class."""
    return Replace(here.variant)


@kind(Effect.SPOILS, "iterator", "function", "module", "numpy", at=(Place.SUMMED,))
def another_object(here: Here) -> Replace:
    """An iterator, a function, a module, an array."""
    made: dict[str, Any] = {
        "iterator": iter([here.value]),
        "function": lambda: here.value,
        "module": here.module,
        "numpy": np.zeros(3),
    }
    return Replace(made[here.variant])


@kind(Effect.SPOILS, float("nan"), float("inf"), float("-inf"), 1e300, at=_BOTH)
def not_finite(here: Here) -> Replace:
    """NaN, infinity, or huge, in one element."""
    spoilt = here.value.clone()
    spoilt.reshape(-1)[-1] = here.variant
    return Replace(spoilt)


@kind(Effect.SPOILS, 2.0, 1 + 1e-6, -1.0, 0.0, at=_BOTH)
def scaled(here: Here) -> Replace:
    """The right value times a factor."""
    return Replace(here.value * here.variant)


@kind(Effect.SPOILS, "flat", "more", "fewer", "scalar", at=_BOTH)
def another_shape(here: Here) -> Replace:
    """A tensor of another shape."""
    value = here.value
    shapes: dict[str, Tensor] = {
        "flat": value.reshape(-1),
        "more": torch.stack([value, value]),  # of one, autograd would sum it up
        "fewer": value[..., :0],
        "scalar": value.sum(),
    }
    return Replace(shapes[here.variant])


@kind(Effect.SPOILS, torch.float16, torch.int64, torch.bool, torch.complex128, torch.float32)
def another_dtype(here: Here) -> Replace:
    """A tensor of another dtype."""
    return Replace(here.value.to(here.variant))


@kind(
    Effect.HARMLESS,
    "strided",
    "channels",
    "expanded",
    "offset",
    at=(Place.SUMMED,),
    everywhere=True,
)
def other_strides(here: Here) -> Replace:
    """The right values under other strides."""
    value = here.value
    if here.variant == "strided":
        return Replace(value.transpose(0, 2).contiguous().transpose(0, 2))
    if here.variant == "channels":
        return Replace(value.repeat_interleave(2, dim=-1)[..., ::2])
    if here.variant == "expanded":
        return Replace(value[None].expand(2, *value.shape)[1])
    return Replace(torch.cat([value, value])[value.shape[0] :])


@kind(Effect.SPOILS, "sparse", "meta", "nested", "quantized", "empty")
def another_layout(here: Here) -> Replace:
    """A sparse, meta, nested, quantized or unwritten tensor."""
    value = here.value
    if here.variant == "sparse":
        return Replace(value.to_sparse())
    if here.variant == "meta":
        return Replace(value.to("meta"))
    if here.variant == "nested":
        return Replace(torch.nested.nested_tensor(list(value.detach())))
    if here.variant == "quantized":
        plain = value.detach().float()
        return Replace(torch.quantize_per_tensor(plain, 0.1, 0, torch.quint8))
    return Replace(torch.empty_like(value))


@kind(Effect.SPOILS)
def without_a_graph(here: Here) -> Replace:
    """The right values, without their gradients."""
    return Replace(here.value.detach())


@kind(Effect.SPOILS)
def a_view_of_its_weight(here: Here) -> Replace:
    """A view of a parameter, in the output's shape."""
    return Replace(here.module.weight.sum().expand(here.value.shape))


@kind(Effect.SPOILS)
def its_storage_gone(here: Here) -> Replace:
    """A tensor whose storage has been freed."""
    gone = here.value.clone()
    gone.untyped_storage().resize_(0)
    return Replace(gone)


@kind(Effect.SPOILS, 2**20, 2**40)
def a_huge_tensor(here: Here) -> Replace:
    """A tensor of a huge shape, and no memory."""
    return Replace(here.value.sum().expand(here.variant))


class _Evil(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise ValueError(f"deliberate: {func}")


class _Equal(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return torch.zeros(1, 1, 1, dtype=torch.float64)


@kind(Effect.SPOILS, _Evil, expects=FAIL)
def a_tensor_that_raises(here: Here) -> Replace:
    """A subclass whose every function raises."""
    return Replace(here.value.as_subclass(here.variant))


@kind(Effect.MEDDLES, _Equal, at=(Place.SUMMED,), expects=ANY)
def a_tensor_that_lies(here: Here) -> Replace:
    """A subclass whose every function gives zeros."""
    return Replace(here.value.as_subclass(here.variant))


class _Pretends:
    __class__ = Tensor
    shape, dtype, requires_grad = torch.Size([1]), torch.float64, False


@kind(Effect.SPOILS)
def what_pretends_to_be_a_tensor(here: Here) -> Replace:
    """An object whose `__class__` is Tensor."""
    return Replace(_Pretends())


class _Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        raise RuntimeError("deliberate: in backward")


@kind(Effect.SPOILS)
def what_fails_in_backward(here: Here) -> Replace:
    """The right values; backward raises."""
    return Replace(_Late.apply(here.value))


@kind(Effect.SPOILS, "list", "dict", "two")
def too_many(here: Here) -> Replace:
    """More outputs than there are, or under other names."""
    value = here.value
    made: dict[str, Any] = {
        "list": [value * 0, value, value],
        "dict": {"another": value},
        "two": (value * 2, value),
    }
    return Replace(made[here.variant])


@kind(Effect.HARMLESS, "neg", "grown", "requires", at=(Place.SUMMED,), everywhere=True)
def odd_but_right(here: Here) -> Replace:
    """The right values as a lazy negation, or through another graph."""
    value = here.value
    if here.variant == "neg":
        return Replace(torch._neg_view(-value))
    if here.variant == "grown":
        return Replace(value + 0)
    return Replace(value.view_as(value))


@kind(Effect.SPOILS, at=(Place.BUILD,))
def a_module_without_parameters(here: Here) -> Replace:
    """A module that computes nothing."""
    return Replace(nn.Identity())


@kind(Effect.SPOILS, at=(Place.SCHEDULE,))
def a_schedule_without_outputs(here: Here) -> Replace:
    """A schedule that returns no list."""
    return Replace(None)


@kind(Effect.SPOILS, at=(Place.SCHEDULE,))
def a_schedule_of_too_few(here: Here) -> Replace:
    """A schedule that returns too few microbatches."""
    return Replace([])


@kind(Effect.SPOILS, at=(Place.SUMMED,))
def its_input(here: Here) -> Replace:
    """What it was given."""
    return Replace(here.module.last_input)
