"""Compares one local tensor with its expected slice. Returns data; writes no sentences.

Three statistics together: the worst element against its own bound, the whole slice's mean square
against its variance, and the projection of the error on the tensor itself against its own, so that
neither one wrong value in a large tensor, nor a small error everywhere, nor a common factor gets
by.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tpcheck.bounds import projection
from tpcheck.bounds.spread import Spread
from tpcheck.verdict import Mismatch


@dataclass(frozen=True)
class Comparison:
    """`mismatch` is None where the values agree; `usage` is the largest error / bound seen."""

    mismatch: Mismatch | None
    usage: float


def compare(
    actual: Tensor | None,
    expected: Tensor,
    spread: Spread,
    *,
    name: str,
    kind: str,
    rank: int,
    dtype: torch.dtype | None = None,
) -> Comparison:
    """`actual` against `expected` ± bounds from `spread`, all of the local shape.

    Args:
        actual: the candidate's tensor in its own dtype, or None where it has none.
        expected: float64 slice of the reference; `spread.sigma` likewise.
        dtype: the dtype that `actual` must have, or None where any will do.
    """
    detail: dict[str, Any]
    if actual is None and "grad" in kind and expected.numel() == 0:
        return Comparison(None, 0.0)  # of a shard without elements
    if actual is None:
        missing = "no gradient here (None)" if "grad" in kind else "not returned this output"
        detail = {"reason": f"the candidate has {missing}"}
        return Comparison(Mismatch(name, kind, rank, detail=detail), math.inf)
    if actual.shape != expected.shape:
        detail = {"shape": list(actual.shape), "expected_shape": list(expected.shape)}
        return Comparison(Mismatch(name, kind, rank, detail=detail), math.inf)
    wrong_dtype = dtype is not None and actual.dtype != dtype
    if expected.numel() == 0:
        return Comparison(None, 0.0)
    value = actual.detach().to(expected.device).double()
    quick = None if wrong_dtype else _agrees(value, expected, spread)
    if quick is not None:
        return quick
    error = (value - expected).abs()
    # equal infinities agree, and so do NaNs: the reference overflows there itself
    same = (value == expected) | (value.isnan() & expected.isnan())
    error = torch.where(same, torch.zeros_like(error), error)
    sigma = spread.sigma
    bound = spread.elementwise_limit(expected.numel()) * sigma
    wrong = ~(error <= bound) & ~same & sigma.isfinite()
    ratio, limit = _norm_ratio(error, sigma, spread)
    z, allowed = _projection(value - expected, expected, spread)
    if not wrong_dtype and not bool(wrong.any()) and ratio <= limit and z <= allowed:
        used = max(ratio / limit, z / allowed if allowed else 0.0)
        return Comparison(None, max(_usage(error, bound), used))
    worst = _worst(error, bound, sigma)
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), expected.shape))
    detail = {"wrong": int(wrong.sum()), "of": expected.numel()}
    if ratio > limit:
        detail |= {"norm_error": ratio, "norm_bound": limit}
    if z > allowed:
        factors = (projection.relative(expected, sigma, x) for x in (z, allowed))
        detail |= dict(zip(("gain_error", "gain_bound"), factors, strict=True))
    if wrong_dtype:
        detail |= {"dtype": _name(actual.dtype), "expected_dtype": _name(dtype)}
    if value.isnan().any():
        detail["nan"] = int(value.isnan().sum())
    wanted, got, gap, allowed = (
        float(t.reshape(-1)[worst]) for t in (expected, value, error, bound)
    )
    found = Mismatch(name, kind, rank, index, wanted, got, gap, allowed, detail=detail)
    return Comparison(found, math.inf)


def _agrees(value: Tensor, expected: Tensor, spread: Spread) -> Comparison | None:
    """The verdict in a few operations where all is finite and within bounds; None to look
    closer."""
    error = (value - expected).abs_()
    sigma = spread.sigma
    limit = spread.elementwise_limit(expected.numel())
    used = float((error / (limit * sigma).clamp_min(5e-324)).max())
    if not used <= 1.0:
        return None
    ratio, allowed = _norm_ratio(error, sigma, spread)
    z, bound = _projection(value - expected, expected, spread)
    if ratio > allowed or z > bound:
        return None
    return Comparison(None, max(used, ratio / allowed, z / bound if bound else 0.0))


def _projection(error: Tensor, expected: Tensor, spread: Spread) -> tuple[float, float]:
    """|z| of the error along the tensor itself, and its limit; not of a part of the tensor."""
    if not spread.gain or expected.numel() != spread.elements:
        return 0.0, 0.0
    return abs(projection.project(expected, spread.sigma, error)), spread.gain_limit()


def _norm_ratio(error: Tensor, sigma: Tensor, spread: Spread) -> tuple[float, float]:
    """√(Σ error² / Σ σ²) over the elements that can be judged, and its limit."""
    judged = sigma.isfinite() & error.isfinite()
    error, sigma = error[judged], sigma[judged]
    scale = float(sigma.square().sum().sqrt())
    size = float(error.square().sum().sqrt())
    if scale == 0.0:
        return (math.inf if size > 0 else 0.0), 1.0
    # few elements dominating σ are few independent errors: the participation ratio counts them
    count = scale**4 / float(sigma.pow(4).sum()) if scale > 1e-60 else sigma.numel()
    return size / scale, spread.norm_limit(int(max(1.0, count)))


def _usage(error: Tensor, bound: Tensor) -> float:
    used = torch.where(bound > 0, error / bound, torch.zeros_like(error))
    return float(torch.nan_to_num(used, nan=0.0, posinf=0.0).max())


def _worst(error: Tensor, bound: Tensor, sigma: Tensor) -> int:
    score = error / bound.clamp_min(torch.finfo(torch.float64).tiny)
    score = torch.where(error.isnan(), torch.full_like(score, torch.inf), score)
    score = torch.where(sigma.isfinite(), score, torch.zeros_like(score))
    return int(score.reshape(-1).argmax())


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def fingerprint(tensor: Tensor | None) -> str:
    """A digest of a tensor's shape, dtype and bits: replicas must agree on it."""
    if tensor is None:
        return "none"
    data = tensor.detach().cpu().contiguous()
    head = f"{data.dtype}{tuple(data.shape)}".encode()
    # −0.0 and 0.0 are one number: adding 0 makes them one pattern of bits
    if data.is_floating_point():
        data = (data.float() if data.element_size() == 1 else data) + 0
    # a dim of size 1 has any stride and is contiguous all the same; a view of bytes wants stride 1
    flat = data.as_strided((data.numel(),), (1,))
    raw = flat.view(torch.uint8).numpy().tobytes() if data.numel() else b""
    return hashlib.blake2b(head + raw, digest_size=12).hexdigest()
