"""Variances of products and sums: what is split over the ranks, and accumulates.

Letters: u, v the unit roundoffs of what is stored and of what accumulates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from tpcheck.bounds.arithmetic import (
    LARGEST,
    OVERFLOW,
    Arithmetic,
    Operation,
    alike,
    steps,
)


def _product(
    how: Arithmetic,
    a: Tensor,
    b: Tensor,
    out: Tensor,
    first: Tensor | None = None,
    times: float = 1.0,
) -> Tensor:
    """Variance of out = times · a @ b: a [*, M, K], b [*, K, N].

    Args:
        first: what the sum may begin with, in place of zero.
    """
    k = a.shape[-1]
    if k == 0:
        return torch.zeros_like(out)
    parts = min(how.degree, k)
    a, b = _padded(a.double(), b.double(), -k % parts)
    chunks_a = a.unflatten(-1, (parts, -1)).movedim(-2, 0)  # [R, *, M, K/R]
    chunks_b = b.unflatten(-2, (parts, -1)).movedim(-3, 0)  # [R, *, K/R, N]
    partial = chunks_a @ chunks_b
    prefix = partial.cumsum(0)
    overflows = partial.abs().sum(0) > LARGEST[how.dtype]
    if times != 1.0:
        partial, prefix, a = times * partial, times * prefix, times * a
    stored = (partial**2).sum(0) + (prefix**2).sum(0)
    squares = (a**2) @ (b**2)
    walk = torch.maximum(squares, (prefix**2).amax(0))
    if first is not None:
        onto = torch.cat([first.double().expand(1, *out.shape), prefix + first.double()])
        walk = torch.where(squares > 0, torch.maximum(walk, (onto**2).amax(0)), walk)
    many = steps(prefix[-1], squares, k)
    variance = (how.u(out) ** 2 * stored + how.v(out) ** 2 * many * walk) / 3
    return torch.where(overflows, OVERFLOW, variance + how.below_normal(out, walk))


def _padded(a: Tensor, b: Tensor, more: int) -> tuple[Tensor, Tensor]:
    """The factors of a product with `more` zeros at the end of K."""
    if not more:
        return a, b
    return F.pad(a, (0, more)), F.pad(b, (0, 0, 0, more))


def matrices(how: Arithmetic, op: Operation) -> Tensor:
    return _product(how, op.args[0], op.args[1], op.out)


def onto(how: Arithmetic, op: Operation) -> Tensor:
    beta, alpha = op.kwargs.get("beta", 1), op.kwargs.get("alpha", 1)
    # with a beta of zero nothing of it is read: not what it is not finite in, either
    first = op.args[0] * beta if beta else torch.zeros_like(op.args[0])
    found = _product(how, op.args[1], op.args[2], op.out, first, alpha)
    return found + how.rounded(op.out)


def with_vector(how: Arithmetic, op: Operation) -> Tensor:
    return _product(how, op.args[0], op.args[1].unsqueeze(-1), op.out.unsqueeze(-1)).squeeze(-1)


def of_vectors(how: Arithmetic, op: Operation) -> Tensor:
    row, column = op.args[0].unsqueeze(0), op.args[1].unsqueeze(-1)
    return _product(how, row, column, op.out.reshape(1, 1)).reshape(())


def total(how: Arithmetic, op: Operation) -> Tensor | None:
    out = op.out
    if not out.is_floating_point():
        return None
    x = op.args[0].double()
    count = max(1, x.numel() // max(1, out.numel()))
    scale = 1.0 / count if op.name == "mean" else 1.0
    over = op.args[1:3] if len(op.args) > 1 else ([], False)
    squares = torch.ops.aten.sum.dim_IntList(x**2, *over).reshape(out.shape)
    dims = over[0] or list(range(x.ndim))
    if not x.ndim or count == 1:
        return how.summed(out, scale**2 * squares, count)
    equal = alike(x, dims, how.v(out)).reshape(out.shape)
    variance = how.summed(out, scale**2 * squares, equal.square().clamp(min=count))
    return or_overflows(how, out, variance, x, dims)


def or_overflows(
    how: Arithmetic, out: Tensor, variance: Tensor, x: Tensor, dims: Sequence[int]
) -> Tensor:
    """`variance` of `out`, the sum of `x` over `dims`, but where parts of it may overflow though it
    does not: those of ranks that split one of the dims, added up in some order."""
    largest = how.narrow(out)
    count = math.prod(x.shape[dim] for dim in dims)
    if largest is None or not count or float(x.abs().amax()) * count <= largest:
        return variance
    for dim in dims:
        parts = torch.stack([part.sum(list(dims)) for part in x.chunk(how.degree, dim)])
        most = parts.abs().sum(0).reshape(variance.shape)
        variance = torch.where(most > largest, OVERFLOW, variance)
    return variance


def running_total(how: Arithmetic, op: Operation) -> Tensor:
    x, dim = op.args[0].double(), op.args[1]
    growth = (op.out.double() ** 2).cumsum(dim) + (x**2).cumsum(dim)
    return how.rounded(op.out) + how.v(op.out) ** 2 * growth / 3


def added_at(how: Arithmetic, op: Operation) -> Tensor:
    """`index_add`, `scatter_add`: (x, dim, index, terms)."""
    x, dim, index, terms = op.args[:4]
    if (alpha := op.kwargs.get("alpha", 1)) != 1:
        terms = terms * alpha
    add = getattr(torch.ops.aten, op.name)
    return _accumulated(how, op.out, x, terms, lambda start, part: add(start, dim, index, part))


def put_at(how: Arithmetic, op: Operation) -> Tensor | None:
    """`index_put`, `put`: (x, indices, terms, whether they are added). What replaces is exact."""
    x, indices, terms, *adds = op.args
    if not (adds and adds[0]) and not op.kwargs.get("accumulate", False):
        return None
    again = getattr(torch.ops.aten, op.name)
    return _accumulated(
        how, op.out, x, terms, lambda start, part: again(start, indices, part, True)
    )


def _accumulated(
    how: Arithmetic,
    out: Tensor,
    x: Tensor,
    terms: Tensor,
    again: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Variance of terms that are added into elements of x: a sum of as many as came there.

    Args:
        again: (start, terms) → the same operation on others.
    """
    x, terms = x.double(), terms.double()
    squares = again(x**2, terms**2)
    count = again((x != 0).double(), torch.ones_like(terms))
    variance = how.summed(out, squares, count)
    return torch.where(count > 1, variance, torch.zeros_like(variance))


def embedding_backward(how: Arithmetic, op: Operation) -> Tensor:
    """A row used n times is a sum of n gradients; used at most once it is exact."""
    grad, indices, rows = op.args[0].double(), op.args[1].reshape(-1), op.args[2]
    flat = (grad**2).reshape(-1, grad.shape[-1])
    squares = torch.zeros(rows, flat.shape[-1], dtype=torch.float64)
    squares = squares.to(grad.device).index_add(0, indices, flat)
    uses = torch.bincount(indices, minlength=rows).double().unsqueeze(-1)
    variance = how.summed(op.out, squares, uses)
    return torch.where(uses > 1, variance, torch.zeros_like(variance))
