"""Compares one local tensor with its expected slice. Returns data; writes no sentences.

Three statistics together: the worst element against its own bound, the whole slice's mean square
against its variance, and the projection of the error on the tensor itself against its own, so that
neither one wrong value in a large tensor, nor a small error everywhere, nor a common factor gets
by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpcheck.bounds import projection
from tpcheck.bounds.spread import Spread
from tpcheck.evidence import Absent, Values, WrongForm, WrongShape
from tpcheck.tensors.blocks import blocks, in_rows
from tpcheck.tensors.forms import as_int64, dtype_name
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind


@dataclass(frozen=True)
class Comparison:
    """`mismatch` is None where the values agree; `usage` is the largest error / bound seen."""

    mismatch: Mismatch | None
    usage: float


def compare(
    actual: Tensor | None,
    expected: Tensor,
    spread: Spread,
    exact: Tensor | None = None,
    *,
    name: str,
    kind: Kind,
    rank: int,
    dtype: torch.dtype | None = None,
) -> Comparison:
    """`actual` against `expected` ± bounds from `spread`, all of the local shape.

    Args:
        actual: the candidate's tensor in its own dtype, or None where it has none.
        expected: float64 slice of the reference; `spread.sigma` likewise.
        exact: of integers and bools the very ones, as int64.
        dtype: the dtype that `actual` must have, or None where any will do.
    """
    if actual is None and kind.is_gradient and expected.numel() == 0:
        return Comparison(None, 0.0)  # of a shard without elements
    if actual is None:
        return Comparison(Mismatch(name, kind, rank, detail=Absent()), math.inf)
    if actual.shape != expected.shape:
        shapes = WrongShape(tuple(actual.shape), tuple(expected.shape))
        return Comparison(Mismatch(name, kind, rank, detail=shapes), math.inf)
    wrong_dtype = dtype is not None and actual.dtype != dtype
    if expected.numel() == 0:
        return Comparison(_of_another_dtype(actual, dtype, name, kind, rank), 0.0)
    actual = actual.detach().to(expected.device)
    whole = exact is not None and not actual.is_floating_point()
    quick = None if wrong_dtype or whole else _agrees(actual, expected, spread)
    if quick is not None:
        return quick
    value = actual.double()
    off = _off(value, expected, spread.largest)
    error = off.abs()
    # equal infinities agree, and so do NaNs: the reference has them there itself
    same = (value == expected) | (value.isnan() & expected.isnan())
    if exact is not None and whole:
        same = as_int64(actual) == exact
        error = error.clamp_min(1.0)  # of two that are one number in float64
    error, sigma = torch.where(same, torch.zeros_like(error), error), spread.sigma
    bound = spread.elementwise_limit(expected.numel()) * sigma
    wrong = ~(error <= bound) & ~same & sigma.isfinite()
    ratio, limit = _norm_ratio(error, sigma, spread)
    # what may overflow, and does, has nothing in common with the others
    z, allowed = _projection(off.masked_fill(value.isinf() & ~wrong, 0.0), expected, spread)
    if not wrong_dtype and not bool(wrong.any()) and ratio <= limit and z <= allowed:
        used = max(ratio / limit, z / allowed if allowed else 0.0)
        return Comparison(None, max(_usage(error, bound), used))
    worst = _worst(error, bound, sigma)
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), expected.shape))
    nan = int((value.isnan() & wrong).sum())
    values = Values(int(wrong.sum()), expected.numel(), nan=nan or None)
    if ratio > limit:
        values = replace(values, norm_error=ratio, norm_bound=limit)
    if z > allowed:
        error_of, bound_of = (projection.relative(expected, sigma, x) for x in (z, allowed))
        values = replace(values, gain_error=error_of, gain_bound=bound_of)
    if wrong_dtype:
        assert dtype is not None
        values = replace(values, dtype=dtype_name(actual.dtype), expected_dtype=dtype_name(dtype))
    wanted, got, gap, allowed = (
        float(t.reshape(-1)[worst]) for t in (expected, value, error, bound)
    )
    found = Mismatch(name, kind, rank, index, wanted, got, gap, allowed, detail=values)
    return Comparison(found, math.inf)


def _off(value: Tensor, expected: Tensor, largest: float) -> Tensor:
    """`value` − `expected`. What overflowed is as wrong as the smallest number that does."""
    overflowed = value.isinf() & expected.isfinite()
    return torch.where(overflowed, value.sign() * largest, value) - expected


def _of_another_dtype(
    actual: Tensor, dtype: torch.dtype | None, name: str, kind: Kind, rank: int
) -> Mismatch | None:
    """The evidence of an empty tensor, which has nothing else."""
    if dtype is None or actual.dtype == dtype:
        return None
    names = dtype_name(actual.dtype), dtype_name(dtype)
    return Mismatch(name, kind, rank, detail=WrongForm(*names))


def _agrees(actual: Tensor, expected: Tensor, spread: Spread) -> Comparison | None:
    """The verdict in a few operations where all is finite and within bounds; None to look
    closer."""
    if not actual.is_floating_point():
        actual = actual.double()
    limit, along = spread.elementwise_limit(expected.numel()), _is_whole(expected, spread)
    used, z = 0.0, 0.0
    grids = (in_rows(tensor) for tensor in (actual, expected, spread.sigma))
    error = torch.empty(expected.shape, dtype=expected.dtype, device=expected.device)
    for got, wanted, sigma, off in blocks(*grids, in_rows(error)):
        torch.sub(got, wanted, out=off)
        largest = (off / (sigma * limit).clamp_min_(5e-324)).abs_().max()
        if not largest <= 1.0:
            return None
        used = max(used, float(largest))
        z += projection.project(wanted, sigma, off) if along else 0.0
    ratio, allowed = _norm_ratio(error, spread.sigma, spread)
    bound = spread.gain_limit() if along else 0.0
    if ratio > allowed or abs(z) > bound:
        return None
    return Comparison(None, max(used, ratio / allowed, abs(z) / bound if bound else 0.0))


def _is_whole(expected: Tensor, spread: Spread) -> bool:
    """Whether errors are judged along the tensor itself; not those of a part of it."""
    return bool(spread.gain) and expected.numel() == spread.elements


def _projection(error: Tensor, expected: Tensor, spread: Spread) -> tuple[float, float]:
    """|z| of the error along the tensor itself, and its limit."""
    if not _is_whole(expected, spread):
        return 0.0, 0.0
    return abs(projection.project(expected, spread.sigma, error)), spread.gain_limit()


def _norm_ratio(error: Tensor, sigma: Tensor, spread: Spread) -> tuple[float, float]:
    """√(Σ error² / Σ σ²) over the elements that can be judged, and its limit."""
    scale, size = _norm(sigma), _norm(error)
    if not math.isfinite(scale + size):
        judged = sigma.isfinite() & error.isfinite()
        error, sigma = error[judged], sigma[judged]
        scale, size = _norm(sigma), _norm(error)
    if scale == 0.0:
        return (math.inf if size > 0 else 0.0), 1.0
    return size / scale, spread.norm_limit(int(max(1.0, independent(sigma, scale, spread))))


def independent(sigma: Tensor, scale: float, spread: Spread) -> float:
    """How many independent errors elements have: few that dominate σ are few, which the
    participation ratio counts.

    Args:
        sigma: of each, finite; `scale` is its norm.
    """
    some = scale > 1e-60 and not spread.least
    return (scale / _norm(sigma.square()) ** 0.5) ** 4 if some else sigma.numel()


def _norm(numbers: Tensor) -> float:
    return float(torch.linalg.vector_norm(numbers))


def _usage(error: Tensor, bound: Tensor) -> float:
    used = torch.where(bound > 0, error / bound, torch.zeros_like(error))
    return float(torch.nan_to_num(used, nan=0.0, posinf=0.0).max())


def _worst(error: Tensor, bound: Tensor, sigma: Tensor) -> int:
    score = error / bound.clamp_min(torch.finfo(torch.float64).tiny)
    score = torch.where(error.isnan(), torch.full_like(score, torch.inf), score)
    score = torch.where(sigma.isfinite(), score, torch.zeros_like(score))
    return int(score.reshape(-1).argmax())
