"""The errors that rounding makes, added to a computation: `RoundingNoise`.

The reference runs in float64 under it. To the result of every operation it adds a random error of
the size that rounding could have there (`operations`): in the case's dtype, for a computation that
is split over the case's ranks. Errors travel through nonlinear layers, depth and backward as real
ones do, cancellation included. What is exact stays exact.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tpcheck.bounds.arithmetic import Arithmetic, Operation, Variance, is_number, results
from tpcheck.bounds.operations import is_exact, parts_of, variances

#: Float64 can't hold its own rounding errors, so they are made this many times as large there, and
#: what they lead to is divided by it again. If it were smaller, the errors would themselves be
#: rounded away; if much larger, the reference would no longer be linear in them.
ENLARGED = 2.0**12


@dataclass(frozen=True)
class Sigma:
    """σ of the errors of a tensor: of each number's own, and of one that all share along `dim`, or
    everywhere."""

    each: Tensor
    shared: Tensor | None
    dim: int | None

    @classmethod
    def of(cls, variance: Variance, times: float) -> Sigma:
        """σ, `times` as large; 0 where it is not finite."""
        shared = variance.shared
        own = None if shared is None else _finite(shared.double() * times)
        return cls(_finite(variance.each.double().sqrt() * times), own, variance.dim)

    def draw(self, generator: torch.Generator) -> Tensor:
        """Normal errors of these σ."""
        drawn = _normal(self.each.shape, self.each, generator).mul_(self.each)
        if self.shared is None:
            return drawn
        rows = [1] * self.each.ndim if self.dim is None else list(self.each.shape)
        if self.dim is not None:
            rows[self.dim] = 1
        return drawn.addcmul_(_normal(rows, self.each, generator), self.shared)


def _finite(sigma: Tensor) -> Tensor:
    return sigma.nan_to_num_(0.0, 0.0, 0.0)


def _rounds(out: Any) -> bool:
    """Whether a result has rounding errors that are modelled: a sparse gradient gathers rows."""
    return is_number(out) and out.layout == torch.strided


def _normal(shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, device=like.device, generator=generator)


#: The operators of a run in turn, and σ of each of their results.
Scales = list[tuple[Any, list[Sigma | None]]]


class RoundingNoise(TorchDispatchMode):
    """Runs float64 operations with the rounding errors of another arithmetic.

    Args:
        arithmetic: the case's dtype, and its degree.
        generator: where the errors come from.
        scales: σ of each operation in turn, shared by the runs of one reference: the first run
            fills it, later ones (other errors, to first order the same σ) read it.
        amplitude: by how much every error is enlarged; −a is the mirror image of a.
    """

    def __init__(
        self,
        arithmetic: Arithmetic,
        generator: torch.Generator,
        scales: Scales | None = None,
        amplitude: float = 1.0,
    ) -> None:
        super().__init__()
        #: what a deviation is to be divided by
        self.enlarged = ENLARGED if arithmetic.dtype == torch.float64 else 1.0
        self.arithmetic = arithmetic
        self.generator = generator
        self.scales = [] if scales is None else scales
        self.amplitude = amplitude
        self._apart: list[Any] = []  # the operators whose parts are running
        self._perturbations = 0  # how many results have been given errors
        self._at = 0  # how many operations that round have run

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler, a second per process, to wrap this class

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if is_exact(func):
            return func(*args, **kwargs)
        name, in_place = _name(func)
        in_place = in_place and isinstance(args[0], Tensor)
        parts = None if func in self._apart else parts_of(func)
        rounded = self._perturbations
        out: Any = None if parts is None else self._in_parts(func, parts, args, kwargs)
        if parts is not None and self._perturbations == rounded:
            return out  # its parts only move numbers
        known = self._known(func)
        # an in-place operation writes over its input, of which the variance is still to be computed
        inputs = (args[0].clone(), *args[1:]) if in_place and known is None else args
        if parts is None:
            out = func(*args, **kwargs)
        outs = results(out)
        if not any(map(_rounds, outs)):
            return out
        if known is None or not _same_shapes(known, outs):
            known = self._scales_of(Operation(name, inputs, kwargs, out), func)
            self.scales.append((func, known))
        self._at += 1
        noisy = [self._perturbed(o, s, in_place) for o, s in zip(outs, known, strict=True)]
        if isinstance(out, Tensor):
            return noisy[0]
        return noisy if isinstance(out, list) else tuple(noisy)

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

    def _known(self, func: Any) -> list[Sigma | None] | None:
        """σ of this operation from an earlier run, if that ran the same one here."""
        if self._at < len(self.scales) and self.scales[self._at][0] is func:
            return self.scales[self._at][1]
        return None

    def _scales_of(self, operation: Operation, func: Any) -> list[Sigma | None]:
        found = variances(self.arithmetic, operation, func)
        return [None if v is None else Sigma.of(v, self.enlarged) for v in found]

    def _perturbed(self, out: Any, sigma: Sigma | None, in_place: bool) -> Any:
        if sigma is None or not _rounds(out):
            return out
        self._perturbations += 1
        errors = self._errors(sigma)
        if out.is_complex():
            errors = torch.complex(errors, self._errors(sigma))
        if errors.dtype != out.dtype:
            errors = errors.to(out.dtype)
        return out.add_(errors) if in_place else out + errors

    def _errors(self, sigma: Sigma) -> Tensor:
        drawn = sigma.draw(self.generator)
        return drawn if self.amplitude == 1.0 else drawn.mul_(self.amplitude)


@functools.cache
def _name(func: Any) -> tuple[str, bool]:
    """An operator's name without its overload, and whether it is the in-place form (`add_`)."""
    name = func.overloadpacket.__name__
    base = name if name.startswith("_") else name.removesuffix("_")
    return base, name == f"{base}_"


def _same_shapes(scales: list[Sigma | None], outs: list[Any]) -> bool:
    return len(scales) == len(outs) and all(
        scale is None or scale.each.shape == out.shape
        for scale, out in zip(scales, outs, strict=True)
    )
