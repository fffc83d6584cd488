"""The variance of one operation's rounding errors, operation by operation: `variances`.

Model, u the unit roundoff of the dtype in which a result is stored, v of the one in which it
accumulates (float32 for half precisions, else u):

* any rounding of a value y: error uniform in ±u|y|, variance u²y²/3;
* a product y = Σ_k a_k b_k, split over R ranks: the R partial products p_r and their R−1 prefix
  sums are each rounded to storage, and the K additions inside accumulate errors as a random walk:
  variance (u²/3)(y² + Σ p_r² + Σ prefix²) + (v²/3)·K·max(Σ a²b², prefix²)
  (Higham & Mary, SIAM J. Sci. Comput. 41(5), 2019: √K growth for independent roundings);
* a sum likewise, with Σ x² standing for the partial sums' squares.

What is exact (views, gathers, masks, sums of zeros) stays exact. See docs/bounds.md for the
derivation and the measurements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tpcheck.bounds import normalization
from tpcheck.bounds.arithmetic import (
    LARGEST,
    OVERFLOW,
    Arithmetic,
    Found,
    Operation,
    Rule,
    Variance,
    steps,
)


def variances(how: Arithmetic, op: Operation) -> list[Variance | None]:
    """Of each of the operation's results; None of one that does not round."""
    found = _RULES.get(op.name, _elementwise)(how, op)
    each = found if isinstance(found, list) else [found]
    return [Variance(v) if isinstance(v, Tensor) else v for v in each]


# Operations without arithmetic, or whose arithmetic is exact.
_EXACT = frozenset(
    """
    copy_ clone detach cat stack embedding index_select gather index where masked_fill
    masked_fill_ masked_scatter masked_select fill_ zero_ zeros zeros_like ones ones_like full
    full_like arange scalar_tensor neg neg_ abs sign relu relu_ threshold_backward clamp
    clamp_min clamp_max maximum minimum max min amax amin argmax argmin eq ne lt le gt ge
    logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not isnan isinf isfinite
    any all nonzero topk sort tril triu flip roll repeat constant_pad_nd slice_backward
    select_backward scatter scatter_ slice_scatter select_scatter
    as_strided_scatter one_hot item _local_scalar_dense lift_fresh lift_fresh_copy set_
    resize_ random_ normal_ uniform_ bernoulli_ is_same_size equal _unsafe_view contiguous
    value_selecting_reduction_backward floor ceil round trunc
    """.split()  # noqa: SIM905
)


@functools.cache
def is_exact(func: Any) -> bool:
    """Whether nothing rounds in an operator, or it is not one of ATen's."""
    name = func.overloadpacket.__name__
    skipped = name.startswith(("empty", "new_"))
    return func.namespace != "aten" or func.is_view or name in _EXACT or skipped


# ---- elementwise, and casts


def _elementwise(how: Arithmetic, op: Operation) -> Found | list[Found]:
    if isinstance(op.out, (tuple, list)):
        return [_elementwise_of(how, op, out) for out in op.out]
    return _elementwise_of(how, op, op.out)


def _elementwise_of(how: Arithmetic, op: Operation, out: Any) -> Found:
    if not isinstance(out, Tensor) or not out.is_floating_point():
        return None
    variance, size = how.rounded(out), out.double().abs()
    first = op.args[0] if op.args and isinstance(op.args[0], Tensor) else None
    if op.name.endswith("_backward") and first is not None and first.shape == out.shape:
        # a derivative is a sum of terms of the gradient's size that may cancel
        variance = variance + (2 * how.v(out) * first.double()) ** 2
        size = torch.maximum(size, first.double().abs())
    if op.name == "erf":  # of torch's vectorised one the error is one of 1, not of the result
        variance = variance + (2 * how.v(out)) ** 2
    if op.name not in _APPROXIMATED:
        return variance
    return Variance(variance, how.v(out) * size.copysign(out), dim=None)


#: Functions of one number that are computed by an approximation, and their derivatives. It errs in
#: one direction for numbers near one another, by up to a few v of the result: numpy's float32 exp
#: by 0.6 v just below 1, a GPU's ex2 by 2 v. Left out, a row of thousands of equal numbers would
#: be called scaled.
_APPROXIMATED = frozenset(
    """
    exp exp2 expm1 log log2 log10 log1p sigmoid log_sigmoid_forward silu tanh erf erfc softplus mish
    elu sin cos tan atan pow rsqrt silu_backward softplus_backward mish_backward elu_backward
    log_sigmoid_backward gelu_backward
    """.split()  # noqa: SIM905
)


def _gelu(how: Arithmetic, op: Operation) -> Variance:
    """½x + ½x·erf(x/√2): for negative x the terms cancel. torch's float32 kernel errs by up to
    5.9 v|x| where it is vectorised and by 1 v|x| in the remainder (measured on [−6, 6]), so a
    tensor that is split differently differs; with tanh in place of erf by up to 1.8 v|x|."""
    width = 1.0 if op.kwargs.get("approximate", "none") == "tanh" else 2.0
    size = width * how.v(op.out) * op.args[0].double()
    return Variance(how.rounded(op.out) + size**2, size.copysign(op.out), dim=None)


def _to_copy(how: Arithmetic, op: Operation) -> Tensor | None:
    """A cast rounds where it goes to fewer bits."""
    x, out = op.args[0], op.out
    floats = x.is_floating_point() and out.is_floating_point()
    return how.rounded(out) if floats and how.u(out) > how.u(x) else None


# ---- products and sums


def _product(
    how: Arithmetic, a: Tensor, b: Tensor, out: Tensor, first: Tensor | None = None
) -> Tensor:
    """Variance of out = a @ b: a [*, M, K], b [*, K, N].

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


def _mm(how: Arithmetic, op: Operation) -> Tensor:
    return _product(how, op.args[0], op.args[1], op.out)


def _addmm(how: Arithmetic, op: Operation) -> Tensor:
    first = op.args[0] * op.kwargs.get("beta", 1)
    return _product(how, op.args[1], op.args[2], op.out, first) + how.rounded(op.out)


def _mv(how: Arithmetic, op: Operation) -> Tensor:
    return _product(how, op.args[0], op.args[1].unsqueeze(-1), op.out.unsqueeze(-1)).squeeze(-1)


def _dot(how: Arithmetic, op: Operation) -> Tensor:
    row, column = op.args[0].unsqueeze(0), op.args[1].unsqueeze(-1)
    return _product(how, row, column, op.out.reshape(1, 1)).reshape(())


def _sum(how: Arithmetic, op: Operation) -> Tensor | None:
    out = op.out
    if not out.is_floating_point():
        return None
    x = op.args[0].double()
    count = max(1, x.numel() // max(1, out.numel()))
    scale = 1.0 / count if op.name == "mean" else 1.0
    over = op.args[1:3] if len(op.args) > 1 else ([], False)
    squares = torch.ops.aten.sum.dim_IntList(x**2, *over).reshape(out.shape)
    return how.summed(out, scale**2 * squares, count)


def _cumsum(how: Arithmetic, op: Operation) -> Tensor:
    x, dim = op.args[0].double(), op.args[1]
    growth = (op.out.double() ** 2).cumsum(dim) + (x**2).cumsum(dim)
    return how.rounded(op.out) + how.v(op.out) ** 2 * growth / 3


def _index_add(how: Arithmetic, op: Operation) -> Tensor:
    """`index_add`, `scatter_add`: (x, dim, index, terms)."""
    x, dim, index, terms = op.args[:4]
    add = getattr(torch.ops.aten, op.name)
    return _accumulated(how, op.out, x, terms, lambda start, part: add(start, dim, index, part))


def _index_put(how: Arithmetic, op: Operation) -> Tensor | None:
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


def _embedding_backward(how: Arithmetic, op: Operation) -> Tensor:
    """A row used n times is a sum of n gradients; used at most once it is exact."""
    grad, indices, rows = op.args[0].double(), op.args[1].reshape(-1), op.args[2]
    flat = (grad**2).reshape(-1, grad.shape[-1])
    squares = torch.zeros(rows, flat.shape[-1], dtype=torch.float64)
    squares = squares.to(grad.device).index_add(0, indices, flat)
    uses = torch.bincount(indices, minlength=rows).double().unsqueeze(-1)
    variance = how.summed(op.out, squares, uses)
    return torch.where(uses > 1, variance, torch.zeros_like(variance))


#: Operation → the variance of its result; any other that is not exact counts as elementwise.
_RULES: dict[str, Rule] = {
    "_to_copy": _to_copy,
    "gelu": _gelu,
    "mm": _mm,
    "bmm": _mm,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "mv": _mv,
    "dot": _dot,
    "sum": _sum,
    "mean": _sum,
    "cumsum": _cumsum,
    "index_add": _index_add,
    "scatter_add": _index_add,
    "index_put": _index_put,
    "put": _index_put,
    "embedding_dense_backward": _embedding_backward,
    "_softmax": normalization.softmax,
    "_safe_softmax": normalization.softmax,  # of decomposed attention
    "_log_softmax": normalization.log_softmax,
    "_softmax_backward_data": normalization.softmax_backward,
    "_log_softmax_backward_data": normalization.log_softmax_backward,
    "native_layer_norm": normalization.layer_norm,
    "native_layer_norm_backward": normalization.layer_norm_backward,
}
