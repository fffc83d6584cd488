"""Variances of what gathers many numbers into one and is not a plain sum: variances, products of
all numbers, and operations that are linear in each of their tensors (convolutions, pools).

Letters: u, v the unit roundoffs of what is stored and of what accumulates.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import Arithmetic, Found, Operation, results, steps


def variance(how: Arithmetic, op: Operation) -> Tensor:
    """`var`: (x, dims or None), the correction in a keyword."""
    return _variance(how, op, op.out)


def deviation(how: Arithmetic, op: Operation) -> Tensor:
    """`std`: √var, of which an error is the root where the variance itself is zero."""
    return _root(how, op, op.out)


def variance_and_mean(how: Arithmetic, op: Operation) -> list[Found]:
    """`var_mean`."""
    return [_variance(how, op, op.out[0]), _mean(how, op, op.out[1])]


def deviation_and_mean(how: Arithmetic, op: Operation) -> list[Found]:
    """`std_mean`."""
    return [_root(how, op, op.out[0]), _mean(how, op, op.out[1])]


def _root(how: Arithmetic, op: Operation, y: Tensor) -> Tensor:
    inside = _variance(how, op, y, squared=y.double() ** 2)
    return how.rounded(y) + torch.minimum(inside / (4 * y.double() ** 2), inside.sqrt())


def _variance(how: Arithmetic, op: Operation, y: Tensor, squared: Tensor | None = None) -> Tensor:
    """Of Σ (x − mean)² / n, in two passes or in one (Chan, Golub and LeVeque, The American
    Statistician 37(3), 1983): the sum's roundings, 2·√y·max|x|·v from a mean that was updated, and
    the square of the mean's own error, all that there is where every number is equal.

    Args:
        y: where the result is stored.
        squared: the result, where `y` is its root.
    """
    x, dims, count = _over(op)
    value = y.double() if squared is None else squared
    mean = x.mean(dims, keepdim=True)
    fourth = (((x - mean) ** 4).sum(dims) / count**2).reshape(value.shape)
    top = x.abs().amax(dims).reshape(value.shape)
    of_mean = _error_of_mean(how, y, x, dims, count).reshape(value.shape)
    v = how.v(y)
    many = steps(value, fourth, count)
    sums = (3 + many) * v**2 * (value**2 + fourth) / 3
    stored = how.rounded(y) if squared is None else torch.zeros_like(value)
    return stored + sums + 4 * v**2 * value * top**2 + of_mean**2


def _mean(how: Arithmetic, op: Operation, y: Tensor) -> Tensor:
    x, dims, count = _over(op)
    return how.rounded(y) + _error_of_mean(how, y, x, dims, count).reshape(y.shape)


def _error_of_mean(
    how: Arithmetic, y: Tensor, x: Tensor, dims: tuple[int, ...], count: int
) -> Tensor:
    """The variance of a mean's error before it is stored."""
    mean, squares = x.mean(dims), (x**2).sum(dims) / count**2
    many = steps(mean * count, squares * count**2, count)
    return (3 + many) * how.v(y) ** 2 * (mean**2 + squares) / 3


def _over(op: Operation) -> tuple[Tensor, tuple[int, ...], int]:
    """What is summed up, over which dims, and how many numbers each result has."""
    x = op.args[0].double()
    given = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim")
    dims = given if isinstance(given, (list, tuple)) and given else range(x.ndim)
    each = tuple(d % max(1, x.ndim) for d in dims) if x.ndim else ()
    count = max(1, functools.reduce(lambda n, d: n * x.shape[d], each, 1))
    return x, each, count


def product_of_all(how: Arithmetic, op: Operation) -> Tensor:
    """`prod`, of all numbers or over (x, dim): each of K − 1 products is rounded, relative to what
    it comes to."""
    x, y = op.args[0].double(), op.out.double()
    dims = tuple(range(x.ndim)) if len(op.args) == 1 else (op.args[1],)
    equal = (x.amax(dims) == x.amin(dims)).reshape(y.shape) if x.numel() else y == y
    return _factors(how, op.out, max(1, x.numel() // max(1, y.numel())), equal)


def products_so_far(how: Arithmetic, op: Operation) -> Tensor:
    """`cumprod`: (x, dim)."""
    x, dim = op.args[0].double(), op.args[1]
    equal = x.cummax(dim).values == x.cummin(dim).values
    return _factors(how, op.out, x.shape[dim] if x.ndim else 1, equal)


def _factors(how: Arithmetic, out: Tensor, count: int, equal: Tensor) -> Tensor:
    """Errors of products of equal factors point one way."""
    many = torch.where(equal, count * count, count)
    return how.rounded(out) + many * (how.v(out) * out.double()) ** 2 / 3


# ---- linear in each tensor


def linear_in_each(how: Arithmetic, op: Operation, again: Any) -> list[Found]:
    """Of Σ a·b·…, by the operation itself on squares, which gives the sum of the terms' squares,
    and on ones, which counts them.

    Args:
        again: the operator.
    """
    squares = results(again(*_each(op.args, torch.square), **op.kwargs))
    counts = results(again(*_each(op.args, torch.ones_like), **op.kwargs))
    outs = results(op.out)
    return [
        how.summed(out, square.double().abs(), count.double().abs().clamp(min=1.0))
        if isinstance(out, Tensor) and out.is_floating_point()
        else None
        for out, square, count in zip(outs, squares, counts, strict=True)
    ]


def _each(args: tuple[Any, ...], of: Any) -> Iterator[Any]:
    for given in args:
        floats = isinstance(given, Tensor) and given.is_floating_point()
        yield of(given.double()) if floats else given
