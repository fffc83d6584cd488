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
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from tpcheck.bounds import gathered, normalization, sums
from tpcheck.bounds.arithmetic import (
    UNIT_ROUNDOFF,
    Arithmetic,
    Found,
    Operation,
    Rule,
    Variance,
    results,
)
from tpcheck.bounds.derivatives import derives, lost
from tpcheck.bounds.exponential import of_exponent
from tpcheck.bounds.gathered import linear_in_each
from tpcheck.bounds.measured import measured


def variances(how: Arithmetic, op: Operation, func: Any) -> list[Variance | None]:
    """Of each of the operation's results; None of one that does not round.

    Args:
        func: the operator.
    """
    found = _found(how, op, func)
    each: Sequence[Found] = found if isinstance(found, list) else [found]
    return [Variance(v) if isinstance(v, Tensor) else v for v in each]


def _found(how: Arithmetic, op: Operation, func: Any) -> Found | list[Found]:
    outs = results(op.out)
    if any(isinstance(out, Tensor) and out.is_complex() for out in outs):
        of_one = of_one_number(func)
        return (None if of_one else measured(how, op, func)) or [how.rounded(o) for o in outs]
    if op.name in _RULES:
        return _RULES[op.name](how, op)
    if op.name in _LINEAR_IN_EACH:
        return linear_in_each(how, op, func)
    if of_one_number(func) or parts_of(func) is not None or derives(op):
        return _elementwise(how, op)
    return measured(how, op, func) or _elementwise(how, op)


@functools.cache
def parts_of(func: Any) -> Callable[..., Any] | None:
    """torch's own decomposition of an operator that is not elementwise and has no rule here: each
    part rounds as it does. None where there is none."""
    name = func.overloadpacket.__name__
    ruled = name in _RULES or name in _LINEAR_IN_EACH
    random = torch.Tag.nondeterministic_seeded in func.tags
    derivative = name.endswith("_backward") and len(func._schema.returns) == 1
    if ruled or random or derivative or of_one_number(func) or func._schema.is_mutable:
        return None
    found = decomposition_table.get(func)
    return found if callable(found) else None


@functools.cache
def of_one_number(func: Any) -> bool:
    """Whether each number of the result comes from one of each tensor that is given."""
    return torch.Tag.pointwise in func.tags


def has_order(func: Any) -> bool:
    """Whether each number of the result is made of several that may come in another order: what is
    added to a sum, too. A product of two numbers has no order, and no cast has."""
    name = func.overloadpacket.__name__.removesuffix("_")
    return name in _SUMS_OF_TWO or not (of_one_number(func) or name == "_to_copy")


_SUMS_OF_TWO = frozenset({"add", "sub", "rsub", "addcmul", "addcdiv", "lerp"})

# Operations without arithmetic, or whose arithmetic is exact.
_EXACT = frozenset(
    """
    copy_ clone detach cat stack embedding index_select gather index where masked_fill
    masked_fill_ masked_scatter masked_select fill_ zero_ zeros zeros_like ones ones_like full
    full_like arange eye scalar_tensor neg neg_ abs sign relu relu_ threshold_backward clamp
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
    if derives(op):
        variance = variance + lost(how, op, out)
        size = torch.maximum(size, op.args[0].double().abs())
    if (exponent := of_exponent(op, out)) is not None:
        variance = variance + (how.v(out) * exponent) ** 2 / 3
        size = torch.maximum(size, exponent / math.sqrt(3.0))  # equal numbers have equal ones
    if op.name == "erf":  # of torch's vectorised one the error is one of 1, not of the result
        variance = variance + (2 * how.v(out)) ** 2
    if op.name not in _APPROXIMATED:
        return variance
    return Variance(variance, (how.v(out) * size.copysign(out),), dim=None)


def _sum_of_two(how: Arithmetic, op: Operation) -> Found | list[Found]:
    """`add` and `sub`: one of the two may be one number for a whole row. What counts is exact."""
    if _counts(op):
        return None
    pair, out = op.args[:2], op.out
    both = all(isinstance(x, Tensor) and x.is_floating_point() for x in pair) and out.ndim
    if both and out.shape[-1] > 1:
        for x, row in (pair, pair[::-1]):
            if x.shape == out.shape and row.ndim and row.shape[-1] == 1:
                return normalization.moved_by_one_number(how, x, out, 0.0, -1)
    return _elementwise(how, op)


#: Integers up to here are numbers of every dtype.
_SMALL_INTEGER = 2**8


def _counts(op: Operation) -> bool:
    """Whether a counter counts, as an optimizer's steps are: an integer of Python is added to one
    number, which is an integer, too."""
    if op.out.ndim or not isinstance(op.args[1], int):
        return False
    value = float(op.out)
    return value.is_integer() and abs(value) <= _SMALL_INTEGER


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
    return Variance(how.rounded(op.out) + size**2, (size.copysign(op.out),), dim=None)


def _to_copy(how: Arithmetic, op: Operation) -> Tensor | None:
    """A cast rounds where it goes to fewer bits. To float8 it has rounded by then, in the reference
    as in the candidate: what they have rounded alike is exact, and where one falls to the other
    side of a tie, errors of before it show that."""
    x, out = op.args[0], op.out
    floats = {x.dtype, out.dtype} <= UNIT_ROUNDOFF.keys()
    return how.rounded(out) if floats and how.u(out) > how.u(x) else None


#: Operations that are linear in each of their tensors.
_LINEAR_IN_EACH = frozenset(
    """
    convolution convolution_backward addbmm _trilinear unfold_backward avg_pool2d
    avg_pool2d_backward avg_pool3d avg_pool3d_backward _adaptive_avg_pool2d
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    upsample_linear1d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward
    upsample_trilinear3d_backward upsample_nearest1d_backward upsample_nearest2d_backward
    upsample_nearest3d_backward
    """.split()  # noqa: SIM905
)

#: Operation → the variance of its result. Of any other: `_found`.
_RULES: dict[str, Rule] = {
    "add": _sum_of_two,
    "sub": _sum_of_two,
    "_to_copy": _to_copy,
    "gelu": _gelu,
    "mm": sums.matrices,
    "bmm": sums.matrices,
    "addmm": sums.onto,
    "baddbmm": sums.onto,
    "mv": sums.with_vector,
    "dot": sums.of_vectors,
    "sum": sums.total,
    "mean": sums.total,
    "cumsum": sums.running_total,
    "index_add": sums.added_at,
    "scatter_add": sums.added_at,
    "index_put": sums.put_at,
    "put": sums.put_at,
    "embedding_dense_backward": sums.embedding_backward,
    "_softmax": normalization.softmax,
    "_safe_softmax": normalization.softmax,  # of decomposed attention
    "_log_softmax": normalization.log_softmax,
    "_softmax_backward_data": normalization.softmax_backward,
    "_log_softmax_backward_data": normalization.log_softmax_backward,
    "var": gathered.variance,
    "std": gathered.deviation,
    "var_mean": gathered.variance_and_mean,
    "std_mean": gathered.deviation_and_mean,
    "prod": gathered.product_of_all,
    "cumprod": gathered.products_so_far,
    "native_layer_norm": normalization.layer_norm,
    "native_layer_norm_backward": normalization.layer_norm_backward,
}
