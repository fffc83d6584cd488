"""The errors that rounding makes, added to a computation: `RoundingNoise`.

The reference runs in float64 under it. To the result of every operation it adds a random error of
the size that rounding could have there (`operations`): in the case's dtype, for a computation that
is split over the case's ranks. Errors travel through nonlinear layers, depth and backward as real
ones do, cancellation included. What is exact stays exact.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tpcheck.bounds import products, times_zero
from tpcheck.bounds.arithmetic import OVERFLOW, Arithmetic, Operation, is_number, results
from tpcheck.bounds.operations import has_order, is_exact, parts_of, variances
from tpcheck.bounds.scales import Scaled, Scales, Sigma
from tpcheck.bounds.spread import MARGIN
from tpcheck.errors import InvalidArgument
from tpcheck.tensors.dispatch import OverCompiled, is_whole, parts_of_whole
from tpcheck.tensors.lists import is_of_lists, run

#: Float64 can't hold its own rounding errors, so they are made this many times as large there, and
#: what they lead to is divided by it again. If it were smaller, the errors would themselves be
#: rounded away; if much larger, the reference would no longer be linear in them.
ENLARGED = 2.0**12

#: What deviations by coarse errors are divided by in float64, where all σ are enlarged by `MARGIN`
#: later: of that they need a factor 2, since the reference itself is off by as much. Less, and
#: faults of the size of the coarse dtype's digits hide; more, and right cases are called wrong.
OF_COARSE = MARGIN[torch.float64] / 2

#: How many times as large as what may overflow a number is that does in any order, as the reference
#: itself shows in the case's dtype: such a one is meant to, as what masks scores. If it were
#: smaller, a large sum that just does not overflow there would be missed.
FAR = 64.0

#: From here on a number is what masks are filled with, the least one of float64, and none that may
#: overflow. If it were smaller, σ of what may overflow, times a weight, would pass for one; if
#: larger, a masked score plus another would not.
FILLED = OVERFLOW / 1e50


def _rounds(out: Any) -> bool:
    """Whether a result has rounding errors that are modelled: a sparse gradient gathers rows."""
    return is_number(out) and out.layout == torch.strided


def _is_coarse(out: Tensor) -> bool:
    """Whether a result is in a dtype with fewer digits than float64."""
    return is_number(out) and torch.finfo(out.dtype).eps > torch.finfo(torch.float64).eps


class RoundingNoise(OverCompiled):
    """Runs float64 operations with the rounding errors of another arithmetic.

    Args:
        arithmetic: the case's dtype, and its degree.
        generator: where the errors come from.
        scales: σ of each operation in turn, shared by the runs of one reference: the first run
            fills it, later ones (other errors, to first order the same σ) read it.
        amplitude: by how much every error is enlarged; −a is the mirror image of a.
        lost: whether numbers that overflow are ∞, and NaN where parts of them do, as ∞ − ∞ is in a
            candidate.
        coarse: of float64, whether errors are those of results in a dtype with fewer digits, as
            they are, and of no others; else of all others, enlarged. What the former lead to is no
            longer linear in them where they are enlarged, and the latter can't be seen where not.
    """

    def __init__(
        self,
        arithmetic: Arithmetic,
        generator: torch.Generator,
        scales: Scales | None = None,
        amplitude: float = 1.0,
        *,
        lost: bool = False,
        coarse: bool = False,
    ) -> None:
        super().__init__()
        self.lost, self.coarse = lost, coarse
        #: whether any number may overflow
        self.may_overflow = False
        self._of_float64 = arithmetic.dtype == torch.float64
        #: what a deviation is to be divided by
        self.enlarged = 1.0 if not self._of_float64 else OF_COARSE if coarse else ENLARGED
        self.arithmetic = arithmetic
        self.generator = generator
        self.scales = Scales() if scales is None else scales
        self.amplitude = amplitude
        self._apart: list[Any] = []  # the operators whose parts are running
        self._perturbations = 0  # how many results have been given errors
        self._products = products.Products()
        self._anew = False
        self._at = 0  # how many operations that round have run
        self._begin()

    def _begin(self) -> None:
        self.scales.draw(self.generator, self.amplitude)

    @contextlib.contextmanager
    def anew(self, dtype: torch.dtype | None = None) -> Iterator[None]:
        """σ of each operation in the block are those of this run, not of the first: of numbers that
        differ between runs by more than their size, as updates by small gradients do. A rounding
        must not turn the sign of what a root is taken of.

        Args:
            dtype: what rounds in the block; None: what rounds outside of it.
        """
        outside, self._anew = self.arithmetic, True
        self.arithmetic = replace(outside, dtype=dtype or outside.dtype)
        try:
            yield
        finally:
            self.arithmetic, self._anew = outside, False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if is_whole(func):
            return self.whole(func, args, kwargs)
        if is_of_lists(func):
            return run(func, args, kwargs, mode=self)
        exact, name, in_place, parts, adds = _nature(func)
        if exact:
            return func(*args, **kwargs)
        if func in self._apart:
            parts = None
        rounded = self._perturbations
        out: Any = None if parts is None else self._in_parts(func, parts, args, kwargs)
        if parts is not None and self._perturbations == rounded:
            return out  # its parts only move numbers
        known = None if self._anew else self.scales.at(self._at, func)
        in_place = in_place and isinstance(args[0], Tensor)
        # an in-place operation writes over its input, which is still to be asked about
        kept = in_place and (known is None or name in times_zero.FACTORS)
        inputs = (args[0].clone(), *args[1:]) if kept else args
        if parts is None:
            out = func(*args, **kwargs)
        outs = results(out)
        if not any(map(_rounds, outs)):
            return out
        if known is None or not _same_shapes(known, outs):
            first = self._products.terms(inputs[0]) if name in products.ASKED else None
            known = self._scaled(Operation(name, inputs, kwargs, out, first), func)
        self._at += not self._anew
        each = zip(outs, known.sigmas, known.errors, strict=True)
        noisy = [self._perturbed(*one, in_place=in_place, adds=adds) for one in each]
        self._products.made(name, inputs, noisy[0])
        if (pair := times_zero.factors(name, inputs)) and self.arithmetic.narrow(outs[0]):
            left, right, made = map(self._runs, (*pair, noisy[0]))
            times_zero.mark(name, left, right, made)
        if isinstance(out, Tensor):
            return noisy[0]
        return noisy if isinstance(out, list) else tuple(noisy)

    def whole(self, func: Any, args: Sequence[Any], kwargs: Any) -> Any:
        """
        Raises:
            InvalidArgument: what it runs is not known.
        """
        if parts_of_whole(func) is None:
            raise InvalidArgument(
                f"how far {func.name()} may round, an operator of higher order, is not known; give "
                "the spec a rounding=, the same function without it"
            )
        return super().whole(func, args, kwargs)

    def _in_parts(self, func: Any, parts: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """An operator's result from its parts, each of which rounds as what is not stored does."""
        stored = self.arithmetic
        self.arithmetic = stored.inside()
        self._apart.append(func)
        try:
            with self:
                return parts(*args, **kwargs)
        finally:
            self._apart.pop()
            self.arithmetic = stored

    def _scaled(self, operation: Operation, func: Any) -> Scaled:
        """An operation that no run before this one had here, with its σ."""
        sigmas = self._sigmas_of(operation, func)
        return Scaled.anew(func, sigmas) if self._anew else self.scales.add(func, sigmas)

    def _sigmas_of(self, operation: Operation, func: Any) -> list[Sigma | None]:
        found = variances(self.arithmetic, operation, func)
        each = zip(found, results(operation.out), strict=True)
        return [None if v is None else Sigma.of(v, self._times(out)) for v, out in each]

    def _times(self, out: Tensor) -> float:
        """By how much the errors of a result are enlarged in the runs that have them."""
        return ENLARGED if self._of_float64 and not _is_coarse(out) else 1.0

    def _perturbed(
        self, out: Any, sigma: Sigma | None, errors: Tensor | None, *, in_place: bool, adds: bool
    ) -> Any:
        """
        Args:
            errors: those that were drawn with others'; None if they are still to be drawn.
            adds: as of `_told`.
        """
        if sigma is None or not _rounds(out):
            return out
        self._perturbations += 1
        if self._of_float64 and _is_coarse(out) is not self.coarse:
            self.scales.coarse = True
            return out
        errors = self._errors(out, sigma, errors)
        if errors.dtype != out.dtype:
            errors = errors.to(out.dtype)
        return self._told(self._sum(out, errors, in_place=in_place), adds=adds)

    def _errors(self, out: Tensor, sigma: Sigma, errors: Tensor | None) -> Tensor:
        if errors is None:
            errors = sigma.draw(self.generator, self.amplitude)
        if out.is_complex():
            errors = torch.complex(errors, sigma.draw(self.generator, self.amplitude))
        return errors

    def _sum(self, out: Tensor, errors: Tensor, *, in_place: bool) -> Tensor:
        return out.add_(errors) if in_place else out + errors

    def _runs(self, value: Tensor) -> Tensor:
        """The numbers of a tensor."""
        return value

    def _told(self, noisy: Tensor, *, adds: bool) -> Tensor:
        """In place: numbers that overflow under these errors, or in another order, stand out
        (`OVERFLOW`), and so does all that they lead to; without these errors they may not.

        Args:
            adds: whether they are sums, or products of many, which have one.
        """
        # there is no doubt of ∞, as of products: of parts that overflow it is known
        if (largest := self.arithmetic.narrow(noisy, adds=adds and not self.lost)) is None:
            return noisy
        size = noisy.abs()
        beyond = size > largest
        if not bool(beyond.any()):
            return noisy
        beyond &= size < FAR * largest
        known = (size > times_zero.LARGE) & (size < FILLED)
        if not bool((beyond | known).any()):
            return noisy
        self.may_overflow = True
        if self.lost:
            return noisy.mul_(torch.where(beyond, torch.inf, 1.0)).masked_fill_(known, torch.nan)
        return noisy.mul_(1.0 + beyond.double() * math.sqrt(OVERFLOW))


class _Nature(NamedTuple):
    """What is known of an operator before it runs."""

    exact: bool
    name: str  # without its overload
    in_place: bool  # whether it is that form (`add_`)
    parts: Callable[..., Any] | None  # see `parts_of`
    adds: bool  # whether its result has an order (`has_order`)


@functools.cache
def _nature(func: Any) -> _Nature:
    name = func.overloadpacket.__name__
    base = name if name.startswith("_") else name.removesuffix("_")
    exact = is_exact(func)
    parts = None if exact else parts_of(func)
    return _Nature(exact, base, name == f"{base}_", parts, has_order(func))


def _same_shapes(known: Scaled, outs: list[Any]) -> bool:
    return len(known.sigmas) == len(outs) and all(
        sigma is None or sigma.each.shape == out.shape
        for sigma, out in zip(known.sigmas, outs, strict=True)
    )
