"""In what a candidate computes: how its dtypes round, and over how many ranks it splits a sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

#: u, half the distance from 1 to the next number: a rounding of y is off by at most u|y|. From the
#: formats: 53, 24, 8 and 11 bits of significand. Every σ is proportional to it: one that is too
#: small raises false alarms, one that is too large hides faults.
UNIT_ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.bfloat16: 2.0**-8,
    torch.float16: 2.0**-11,
}

#: The largest finite number. A partial sum beyond it overflows though the whole may not, so the
#: element is not judged. If it were too large, a correct float16 candidate would be called wrong.
LARGEST = {dtype: torch.finfo(dtype).max for dtype in UNIT_ROUNDOFF}

#: Where it is asked what may overflow beside products: of float16 alone, whose largest number is
#: near what cases draw; asking costs half as much as errors do. Of sums from a quarter of that on,
#: since in another order a sum of a few such numbers is larger than it is. If it were smaller,
#: float16 would be judged less than it could; if larger, right candidates that just overflow would
#: be called wrong.
NARROW = LARGEST[torch.float16] / 4

#: The smallest number above zero. Below the normal range rounding is no longer relative, and the
#: errors of u|y| alone would call a correct candidate wrong there.
TINY = {
    torch.float64: 2.0**-1074,
    torch.float32: 2.0**-149,
    torch.bfloat16: 2.0**-133,
    torch.float16: 2.0**-24,
}

#: Terms whose sum squared is K · Σ term² but for this share are equal (Cauchy and Schwarz): far
#: above what float64 rounds there, and far below what different numbers come to.
EQUAL = 2.0**-40

#: The variance of what may overflow in another order: far beyond any number that a case draws, so
#: that it stands out (`spread.UNSURE`) after every later operation, and its square root finite
#: where it is multiplied on. If it were too small, an overflow would pass for a large σ.
OVERFLOW = 1e250


@dataclass(frozen=True)
class Arithmetic:
    """What decides how large rounding errors are.

    Args:
        dtype: the case's. The reference's float64 tensors stand for tensors of it; those that the
            reference itself makes in another dtype (an upcast norm) round in that one.
        degree: R, into how many partial sums each reduction may be split.
        flushes: whether numbers below the normal range may count as zero, as many kernels have it.
    """

    dtype: torch.dtype
    degree: int
    flushes: bool = False

    def u(self, tensor: Tensor) -> float:
        """The unit roundoff in which `tensor` is stored."""
        return UNIT_ROUNDOFF[self._stored(tensor)]

    def v(self, tensor: Tensor) -> float:
        """The unit roundoff in which sums of `tensor`'s dtype accumulate: float32 for the half
        precisions."""
        return min(self.u(tensor), UNIT_ROUNDOFF[torch.float32])

    def tiny(self, tensor: Tensor) -> float:
        """The smallest number above zero where `tensor` is stored."""
        dtype = self._stored(tensor)
        return torch.finfo(dtype).smallest_normal if self.flushes else TINY[dtype]

    def narrow(self, tensor: Tensor, *, adds: bool = True) -> float | None:
        """From which number on what is stored as `tensor` is may overflow (`NARROW`); None where
        cases do not come near.

        Args:
            adds: whether it is of sums; else rounding alone decides.
        """
        if self._stored(tensor) != torch.float16:
            return None
        return NARROW if adds else LARGEST[torch.float16]

    def rounded(self, out: Tensor) -> Tensor:
        """Variance of one rounding: of an error uniform in ±u|y|, and at least of TINY."""
        y = out.abs().double() if out.is_complex() else out.double()
        variance = (self.u(out) * y) ** 2 / 3
        if self.dtype == torch.float64:
            return variance
        return variance + (y != 0).double() * self.tiny(out) ** 2

    def summed(self, out: Tensor, squares: Tensor, count: int | Tensor) -> Tensor:
        """Variance of a sum of `count` terms, `squares` the sum of their squares."""
        size = out.double() ** 2 + squares
        many = steps(out.double(), squares, count)
        relative = (3 * self.u(out) ** 2 + many * self.v(out) ** 2) * size / 3
        return relative + self.below_normal(out, size)

    def below_normal(self, out: Tensor, size: Tensor) -> Tensor:
        """Variance of the roundings of a sum that is split over the ranks (each part, and each sum
        of parts) where they are no longer relative: up to half of the smallest number each. None
        where every term is zero."""
        if self.dtype == torch.float64:
            return torch.zeros_like(size)
        return (size != 0).double() * 2 * self.degree * self.tiny(out) ** 2 / 12

    def inside(self) -> Arithmetic:
        """That of what an operation computes and does not store: float32 for the half
        precisions."""
        halves = UNIT_ROUNDOFF[self.dtype] > UNIT_ROUNDOFF[torch.float32]
        return replace(self, dtype=torch.float32) if halves else self

    def _stored(self, tensor: Tensor) -> torch.dtype:
        dtype = tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
        return self.dtype if dtype == torch.float64 else dtype


def rounding(sizes: Tensor, dtype: torch.dtype) -> Tensor:
    """How far off one rounding of numbers of these sizes may be, below the normal range, too."""
    return (UNIT_ROUNDOFF[dtype] * sizes).clamp(min=TINY[dtype] / 2) * (sizes != 0)


def steps(total: Tensor, squares: Tensor, count: int | Tensor) -> Tensor:
    """By how many independent errors a sum of `count` terms grows: K, and K² where all terms are
    equal, as their errors then are."""
    equal = total**2 > (1 - EQUAL) * count * squares
    return torch.where(equal, count * count, count) + torch.zeros_like(squares)


def alike(x: Tensor, dims: Sequence[int], unit: float) -> Tensor:
    """How many terms of the sum of `x` over `dims` are equal, where most are, else 0: what is added
    to a large number is rounded alike each time. Zeros round nothing.

    Args:
        unit: the roundoff of the sum: what differs by a few is no other number.

    Returns:
        It by sum, with `dims` kept, of size 1.
    """
    over = [dim % x.ndim for dim in dims]
    rows = x.movedim(over, list(range(-len(over), 0))).flatten(-len(over))
    middle = rows.median(-1, keepdim=True).values
    equal = ((rows - middle).abs() <= 4 * unit * middle.abs()).sum(-1).double()
    most = (middle.squeeze(-1) != 0) & (2 * equal > rows.shape[-1])
    shape = [1 if dim in over else size for dim, size in enumerate(x.shape)]
    return (equal * most).reshape(shape)


def results(out: Any) -> list[Any]:
    """What an operation gave, as a list."""
    return list(out) if isinstance(out, (list, tuple)) else [out]


def is_number(out: Any) -> bool:
    """Whether it is a tensor of real or complex numbers, which round."""
    return isinstance(out, Tensor) and (out.is_floating_point() or out.is_complex())


@dataclass(frozen=True)
class Operation:
    """One ATen operation that has run.

    Args:
        name: without its overload, and without the underscore of its in-place form.
        args, kwargs: what it was given (of an in-place one: before it ran).
        out: its result, or a list of them.
        first: the product that its first argument is, where that is known (`bounds/products.py`).
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    out: Any
    first: Terms | None = None


@dataclass(frozen=True)
class Terms:
    """What numbers are sums of: the squares of their terms, added up, and how many there are."""

    squares: Tensor
    count: int


@dataclass(frozen=True)
class Variance:
    """Of the errors that rounding adds to a tensor.

    Args:
        each: of every number's own error.
        shared: σ of each error that all numbers along `dim` have in common, with the sign that it
            has at each; all numbers of the tensor where `dim` is None.
    """

    each: Tensor
    shared: tuple[Tensor, ...] = ()
    dim: int | None = -1


Found = Variance | Tensor | None  # a tensor is the variance of errors that are all independent
Rule = Callable[[Arithmetic, Operation], Found | list[Found]]
