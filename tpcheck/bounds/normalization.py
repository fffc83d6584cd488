"""Variances of softmax, layer norm and their gradients: operations of several steps inside, which a
fused kernel may take in another way.

Letters: u, v the unit roundoffs of what is stored and of what accumulates; g the gradient that
comes in.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import Arithmetic, Found, Operation, Variance, alike
from tpcheck.bounds.sums import or_overflows

#: The σ of an error uniform in ±a is a / √3.
_ROOT = math.sqrt(3.0)


def softmax(how: Arithmetic, op: Operation) -> Found:
    out, dim = op.out, op.args[1]
    x, y = op.args[0].double(), out.double()
    count = out.shape[dim] if out.ndim else 1
    top = _finite(x.amax(dim, keepdim=True))
    # exp(x − max) as 2^((x − max)·log₂ e), whose exponent rounds (`bounds/exponential.py`)
    steps = count + (x - top).nan_to_num(0.0, 0.0, 0.0) ** 2
    each = how.rounded(out) + steps * (how.v(out) * y) ** 2 / 3
    if not out.ndim:
        return each
    # flash attention stores log Σ exp, and its backward computes exp(x − log Σ exp) anew: what was
    # rounded there is an error of every probability of the row, those near 1 included
    total = _finite(x.logsumexp(dim, keepdim=True))
    return Variance(each, (how.v(out) * y * total / _ROOT,), dim)


def log_softmax(how: Arithmetic, op: Operation) -> Found:
    """x − max − log Σ exp: each term may exceed the result."""
    x, out, dim = op.args[0], op.out, op.args[1]
    top = _finite(x.double().abs().amax(dim, keepdim=True))
    inside = (how.v(out) * (out.double().abs() + top)) ** 2
    found = moved_by_one_number(how, x, out, inside, dim)
    if not isinstance(found, Variance) or not found.shared:
        return found
    # a fused loss stores log Σ exp, and its backward computes exp(x − log Σ exp) anew: what was
    # rounded there scales all gradients of the row alike
    total = _finite(x.double().logsumexp(dim, keepdim=True))
    stored = (how.v(out) * total / _ROOT).expand(out.shape)
    return Variance(found.each, ((found.shared[0] ** 2 + stored**2).sqrt(),), dim)


def moved_by_one_number(
    how: Arithmetic, x: Tensor, out: Tensor, inside: Tensor | float, dim: int
) -> Found:
    """Of x − c, c one number along `dim`. x is a multiple of its last bit, so what c leaves over of
    that moves all numbers alike before they are rounded to the result's last bit: of the variance
    of that rounding the share (x / result)², half at most, counts as one error.

    Args:
        inside: the variance of what is not rounding of the result.
    """
    rounded = how.rounded(out)
    if not out.ndim or out.shape[dim] == 1:
        return rounded + inside
    share = (x.double().abs() / out.double().abs()).nan_to_num(0.0).clamp(max=1.0) ** 2 / 2
    return Variance(rounded * (1 - share) + inside, ((rounded * share).sqrt(),), dim)


def _finite(x: Tensor) -> Tensor:
    return torch.where(x.isfinite(), x, torch.zeros_like(x))


def softmax_backward(how: Arithmetic, op: Operation) -> Found:
    """dx = y (g − Σ g y): the difference may cancel."""
    out, dim = op.out, op.args[2]
    g, y = op.args[0].double(), op.args[1].double()
    total = (g * y).sum(dim, keepdim=True)
    each = how.rounded(out) + 4 * how.v(out) ** 2 * y**2 * (g**2 + total**2)
    if not out.ndim:
        return each
    # flash attention takes Σ g y from its output, which was rounded when it was stored: one error
    # for the row, in a half precision, too
    of_row = how.u(out) ** 2 * (g**2 * y).sum(dim, keepdim=True)
    if op.first is not None:
        # g = Σ_j a_j b_j, and Σ g y is Σ_j a_j (Σ b_j y): another sum, whose errors are as large as
        # its terms are, however small g is. (Σ b_j y)² ≤ Σ b_j² y, since Σ y = 1
        terms = (op.first.squares * y).sum(dim, keepdim=True)
        of_row = torch.maximum(of_row, how.u(out) ** 2 * terms)
        of_row = of_row + how.v(out) ** 2 * op.first.count * terms
    return Variance(each, (y * of_row.sqrt() / _ROOT,), dim)


def log_softmax_backward(how: Arithmetic, op: Operation) -> Tensor:
    """dx = g − y Σ g, y the probabilities: the difference may cancel."""
    g, y = op.args[0].double(), op.args[1].double().exp()
    total = g.sum(op.args[2], keepdim=True)
    return how.rounded(op.out) + 4 * how.v(op.out) ** 2 * (g**2 + (y * total) ** 2)


def layer_norm(how: Arithmetic, op: Operation) -> list[Found]:
    """y = (x − mean)·rstd·w + b, inside in the accumulation dtype, rounded once; rstd's own error
    is the same for a row, and so is the mean's: both are of sums of K numbers. What backward is
    given of the mean and of rstd is stored in the parameters' dtype (torch on a CPU)."""
    y, mean, rstd = op.out
    x, shape, weight = op.args[0].double(), op.args[1], op.args[2]
    slope = rstd.double() * (1.0 if weight is None else weight.double())
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    top = x.abs().amax(dims, keepdim=True)
    of_mean = _of_mean(x, mean.double(), dims, how.v(y))
    of_rstd = (1 + _of_root(x - mean.double(), dims, how.v(y))).sqrt()
    inner = (how.v(y) * slope * (x.abs() + mean.double().abs())) ** 2
    spread_of_rstd = how.v(y) * rstd.double() * (of_rstd + top * rstd.double())
    of_row = (how.v(y) * of_rstd * (x - mean.double()) * slope, how.v(y) * of_mean.sqrt() * slope)
    return [
        Variance(how.rounded(y) + inner, of_row, -1 if len(shape) == 1 else None),
        how.rounded(mean) + how.v(y) ** 2 * torch.maximum(top**2, of_mean),
        how.rounded(rstd) + spread_of_rstd**2,
    ]


def _of_mean(x: Tensor, mean: Tensor, dims: tuple[int, ...], unit: float) -> Tensor:
    """Of the mean of K numbers, added up one after the other: the variance in units of v²."""
    count = max(1, math.prod(x.shape[dim] for dim in dims))
    squares = (x**2).sum(dims, keepdim=True) / count**2
    many = alike(x, dims, unit).square().clamp(min=count)
    return many * (mean**2 + squares) / 3


def _of_root(centred: Tensor, dims: tuple[int, ...], unit: float) -> Tensor:
    """Of 1 / √variance, relative to it, in units of v²: half of the relative error of a mean of
    squares, where most of them are equal."""
    return alike(centred**2, dims, unit) ** 2 / 12


def layer_norm_backward(how: Arithmetic, op: Operation) -> list[Found]:
    grad, x, shape, mean, rstd, weight = op.args[:6]
    dx, dw, db = op.out
    x_hat = (x.double() - mean.double()) * rstd.double()
    leading = tuple(range(x.ndim - len(shape)))
    count = max(1, math.prod(x.shape[: len(leading)]))

    def over_rows(out: Tensor | None, rows: Tensor) -> Tensor | None:
        if out is None:
            return None
        variance = how.summed(out, (rows**2).sum(leading).reshape(out.shape), count)
        return or_overflows(how, out, variance, rows, leading)

    into_x = None
    if dx is not None:
        dims = tuple(range(x.ndim - len(shape), x.ndim))
        g = grad.double() * (1.0 if weight is None else weight.double())
        blur = (x.double().abs() + mean.double().abs()) * rstd.double()  # of x̂, in units of v
        terms = g**2 + (g**2).mean(dims, keepdim=True) * (1 + x_hat**2) * (1 + blur**2)
        into_x = how.rounded(dx) + 4 * how.v(dx) ** 2 * rstd.double() ** 2 * terms
    return [into_x, over_rows(dw, grad.double() * x_hat), over_rows(db, grad.double())]
