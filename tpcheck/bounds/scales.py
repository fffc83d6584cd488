"""σ of the errors of every operation of a run, found once and shared by the runs that repeat it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import Variance

#: Numbers of a result up to which its errors are drawn together with those of the others of the
#: run: for small tensors most of the time is that of calls. Larger ones are drawn when they are
#: needed, so that a run does not hold the errors of all.
SMALL = 4096

#: Numbers that cost as much as an operation does by itself: its dispatch, against their errors.
OF_AN_OPERATION = 500

_NONE = torch.empty(0, dtype=torch.float64)


@dataclass(frozen=True)
class Sigma:
    """σ of the errors of a tensor: of each number's own, and of those that all share along `dim`,
    or everywhere."""

    each: Tensor
    shared: tuple[Tensor, ...]
    dim: int | None

    @classmethod
    def of(cls, variance: Variance, times: float) -> Sigma:
        """σ, `times` as large; 0 where it is not finite."""
        each = _finite(variance.each.double().sqrt() * times)
        shared = (_finite(own.double() * times).expand(each.shape) for own in variance.shared)
        return cls(each, tuple(shared), variance.dim)

    @property
    def rows(self) -> list[int]:
        """The shape of the errors that numbers share."""
        if self.dim is None:
            return [1] * self.each.ndim
        rows = list(self.each.shape)
        rows[self.dim] = 1
        return rows

    def draw(self, generator: torch.Generator, amplitude: float) -> Tensor:
        """Normal errors of these σ, enlarged."""
        drawn = normal(self.each.shape, generator) * self.each
        for shared in self.shared:
            drawn += normal(self.rows, generator) * shared
        return drawn if amplitude == 1.0 else drawn.mul_(amplitude)


def _finite(sigma: Tensor) -> Tensor:
    return sigma.nan_to_num_(0.0, 0.0, 0.0)


def normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Normal errors of size 1, in float32: a quarter of float64's time, and σ of a few runs is
    known to two digits. Times a float64 σ they are float64."""
    return torch.randn(
        torch.Size(shape), dtype=torch.float32, device=generator.device, generator=generator
    )


@dataclass
class Scaled:
    """An operation of a run: its operator, and σ of each of its results."""

    func: Any
    sigmas: list[Sigma | None]
    errors: list[Tensor | None]  # of the run that goes on, where they were drawn together

    @classmethod
    def anew(cls, func: Any, sigmas: list[Sigma | None]) -> Scaled:
        """One whose errors are still to be drawn."""
        return cls(func, sigmas, [None] * len(sigmas))


class Scales:
    """The operations of a run in turn. The first run fills it; later ones (other errors, to first
    order the same σ) read it."""

    def __init__(self) -> None:
        self.coarse = False  # whether any result of a run in float64 has fewer digits
        self._operations: list[Scaled] = []
        self._together: Together | None = None

    @property
    def known(self) -> bool:
        """Whether a run has filled it."""
        return self._together is not None or bool(self._operations)

    @property
    def numbers(self) -> int:
        """How many there are in all results of a run."""
        sigmas = (sigma for scaled in self._operations for sigma in scaled.sigmas)
        return sum(sigma.each.numel() for sigma in sigmas if sigma is not None)

    @property
    def size(self) -> int:
        """How much work a run is: its operations, and their results' numbers by what an operation
        of none costs."""
        return len(self._operations) + self.numbers // OF_AN_OPERATION

    def add(self, func: Any, sigmas: list[Sigma | None]) -> Scaled:
        """One more operation. Of a later run it is not kept: no run depends on the ones before it,
        other than on the first."""
        if self._together is not None:
            return Scaled.anew(func, sigmas)
        self._operations.append(Scaled.anew(func, sigmas))
        return self._operations[-1]

    def at(self, index: int, func: Any) -> Scaled | None:
        """The operation that an earlier run had here, if that was the same one."""
        if index < len(self._operations) and self._operations[index].func is func:
            return self._operations[index]
        return None

    def draw(self, generator: torch.Generator, amplitude: float) -> None:
        """Draws the errors of all small results for the run that begins."""
        if not self._operations:
            return
        if self._together is None:
            self._together = Together(self._operations)
        self._together.draw(generator, amplitude)


class Together:
    """The σ of all small results, one after the other in one tensor; those with most errors that
    numbers share come first.

    Args:
        operations: as they are now; each draw gives them their errors.
    """

    def __init__(self, operations: Sequence[Scaled]) -> None:
        places = [
            (scaled, i, sigma)
            for scaled in operations
            for i, sigma in enumerate(scaled.sigmas)
            if sigma is not None and sigma.each.numel() <= SMALL
        ]
        self._places = sorted(places, key=lambda place: -len(place[2].shared))
        sigmas = [sigma for *_, sigma in self._places]
        self._each = flat(sigma.each for sigma in sigmas)
        self._shared = [_Shared.of(sigmas, n) for n in range(_most(sigmas))]
        self._sizes = [sigma.each.numel() for sigma in sigmas]

    def draw(self, generator: torch.Generator, amplitude: float) -> None:
        """Normal errors, enlarged."""
        drawn = normal([len(self._each)], generator) * self._each
        for shared in self._shared:
            rows = normal([shared.rows], generator)[shared.row_of]
            drawn[: len(rows)] += rows * shared.sigma
        if amplitude != 1.0:
            drawn.mul_(amplitude)
        for (scaled, i, sigma), errors in zip(self._places, drawn.split(self._sizes), strict=True):
            scaled.errors[i] = errors.view(sigma.each.shape)


@dataclass(frozen=True)
class _Shared:
    """The n-th error that numbers share, of all results that have so many: the first ones.

    Args:
        sigma: at each number.
        rows: how many such errors there are in all.
        row_of: which of them each number has.
    """

    sigma: Tensor
    rows: int
    row_of: Tensor

    @classmethod
    def of(cls, sigmas: Sequence[Sigma], n: int) -> _Shared:
        own = [sigma for sigma in sigmas if len(sigma.shared) > n]
        return cls(flat(sigma.shared[n] for sigma in own), *_rows_of(own))


def _most(sigmas: Iterable[Sigma]) -> int:
    return max((len(sigma.shared) for sigma in sigmas), default=0)


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """All numbers of some float64 tensors, one after the other."""
    return torch.cat([_NONE, *(t.reshape(-1) for t in tensors)])


def _rows_of(sigmas: Sequence[Sigma]) -> tuple[int, Tensor]:
    """How many errors are shared in all, and which of them each number has."""
    count, numbers = 0, [_NONE.long()]
    for sigma in sigmas:
        own = math.prod(sigma.rows)
        row = torch.arange(count, count + own).reshape(sigma.rows)
        numbers.append(row.expand(sigma.each.shape).reshape(-1))
        count += own
    return count, torch.cat(numbers)
