"""Ops of `torch.library` that multiply x by y, right but for what their names say."""

from typing import Any

import torch
from torch import Tensor

LIBRARY = "tpcheck_odd_ops"


def product(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).contiguous()


def like(x: Tensor, y: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def gradients(ctx: Any, dz: Tensor) -> tuple[Tensor, Tensor]:
    x, y = ctx.saved_tensors
    return dz * y, dz * x


def op(
    name: str, fn: Any = product, *, fake: Any = like, backward: Any = gradients, mutates: Any = ()
) -> Any:
    made = torch.library.custom_op(f"{LIBRARY}::{name}", fn, mutates_args=mutates)
    if fake is not None:
        made.register_fake(fake)
    if backward is not None:
        made.register_autograd(backward, setup_context=keep)
    return made


# ---- wrong fake kernels


def other_shape(x: Tensor, y: Tensor) -> Tensor:
    return x.new_empty(x.shape[::-1])


def other_dtype(x: Tensor, y: Tensor) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.int8)


def strided(x: Tensor, y: Tensor) -> Tensor:
    return (x.mT.contiguous() * y.mT).mT


# ---- schemas


def changes_x(x: Tensor, y: Tensor) -> Tensor:
    out = (x * y).contiguous()
    x.neg_()
    return out


def gradients_of_changed(ctx: Any, dz: Tensor) -> tuple[Tensor, Tensor]:
    x, y = ctx.saved_tensors
    return dz * y, dz * -x


def through_lists(ctx: Any, dz: Tensor) -> tuple[Tensor, Tensor]:
    x, y = (t.detach() for t in ctx.saved_tensors)
    dx = torch.tensor((dz * y).reshape(-1).tolist(), dtype=x.dtype).view(x.shape)
    return dx, dz * x


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return product(x, y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return gradients(ctx, *grads)


_library = torch.library.Library(LIBRARY, "FRAGMENT")


def defined(name: str, fn: Any) -> Any:
    """On the key of the CPU alone, as C++ extensions often are."""
    _library.define(f"{name}(Tensor x, Tensor y) -> Tensor")
    _library.impl(name, fn, "CPU")
    _library.impl(name, like, "Meta")
    return getattr(getattr(torch.ops, LIBRARY), name)


right = op("right")
without_fake = op("without_fake", fake=None)
fake_of_other_shape = op("fake_of_other_shape", fake=other_shape)
fake_of_other_dtype = op("fake_of_other_dtype", fake=other_dtype)
fake_of_other_strides = op("fake_of_other_strides", strided)
hides_a_change = op("hides_a_change", changes_x, backward=gradients_of_changed)
without_autograd = op("without_autograd", backward=None)
backward_reads_numbers = op("backward_reads_numbers", backward=through_lists)
declares_a_change = op("declares_a_change", changes_x, backward=None, mutates=("x",))
autograd_at_the_cpus_key = defined("autograd_at_the_cpus_key", Product.apply)
returns_its_input = defined("returns_its_input", lambda x, y: x.detach())


def backward_op(dz: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (dz * y).contiguous(), (dz * x).contiguous()


_backward_op = torch.library.custom_op(f"{LIBRARY}::backward_op", backward_op, mutates_args=())


class OfOps(torch.autograd.Function):
    """A function whose forward and backward are ops without autograd, one of them without fake
    kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return without_autograd(x, y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return _backward_op(grads[0], *ctx.saved_tensors)


class OfRightOps(OfOps):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return gradients(ctx, *grads)
