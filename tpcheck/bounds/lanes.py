"""Several noisy runs at once: `NoiseInLanes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import Arithmetic, Operation
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.operations import of_one_number
from tpcheck.bounds.scales import Scaled, Scales, Sigma, normal
from tpcheck.tensors.lanes import Apart, Lanes


@dataclass(frozen=True)
class Drawn:
    """The errors of so many runs.

    Args:
        singles: runs with errors of their own.
        pairs: of runs under the same errors, `strain` times as large, and mirrored in the second.
    """

    singles: int
    pairs: int
    strain: float = 1.0

    @property
    def count(self) -> int:
        """All runs: the first one is without errors, and shows whether they can be made so."""
        return 1 + self.singles + 2 * self.pairs

    def of(self, sigma: Sigma, generator: torch.Generator) -> Tensor:
        """[run, ...]: normal errors of these σ."""
        each, shared = _numbers(sigma.each), [_numbers(own) for own in sigma.shared]
        drawn = self._each(sigma.each.shape, generator) * each
        for own in shared:
            drawn += self._each(torch.Size(sigma.rows), generator) * own
        return drawn

    def _each(self, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """[run, ...]: normal numbers."""
        count = self.singles + self.pairs
        drawn = normal((count, *shape), generator)
        if not shape:  # times a σ that is one number it would stay float32
            drawn = drawn.double()
        alone, strained = drawn[: self.singles], drawn[self.singles :] * self.strain
        mirrored = torch.stack([strained, -strained], 1).flatten(0, 1)
        return torch.cat([drawn.new_zeros(1, *shape), alone, mirrored])


class NoiseInLanes(RoundingNoise):
    """As `RoundingNoise`, of a computation with `Lanes`.

    Args:
        scales: which an earlier run has filled.
        drawn: what errors the runs have.
    """

    def __init__(
        self, arithmetic: Arithmetic, generator: torch.Generator, scales: Scales, drawn: Drawn
    ) -> None:
        self.drawn = drawn
        super().__init__(arithmetic, generator, scales)

    def _begin(self) -> None:
        """Errors are drawn as they are needed."""

    def _scaled(self, operation: Operation, func: Any) -> Scaled:
        if not self._anew:
            raise Apart(f"{func}: another one than in the run before")
        return Scaled.anew(func, self._sigmas_of(operation, func))

    def _sigmas_of(self, operation: Operation, func: Any) -> list[Sigma | None]:
        """Of an operator of one number of each tensor: as of one with a dim more."""
        given = [x for x in (*operation.args, *operation.kwargs.values()) if isinstance(x, Tensor)]
        alike = {x.ndim for x in given} == {operation.out.ndim} if given else False
        if not (alike and operation.out.ndim and of_one_number(func) and _all_lanes(given)):
            return super()._sigmas_of(operation, func)
        named = {name: _numbers(x) for name, x in operation.kwargs.items()}
        args = tuple(map(_numbers, operation.args))
        whole = Operation(operation.name, args, named, _numbers(operation.out))
        return [
            sigma and Sigma(Lanes(sigma.each), tuple(map(Lanes, sigma.shared)), sigma.dim)
            for sigma in super()._sigmas_of(whole, func)
        ]

    def _errors(self, out: Tensor, sigma: Sigma, errors: Tensor | None) -> Tensor:
        own = self.drawn.of(sigma, self.generator)
        return torch.complex(own, self.drawn.of(sigma, self.generator)) if out.is_complex() else own

    def _sum(self, out: Tensor, errors: Tensor, *, in_place: bool) -> Tensor:
        if not isinstance(out, Lanes):
            if in_place:
                raise Apart("runs are written into one tensor")
            return Lanes(out + errors)
        if in_place:
            out.each.add_(errors)
            return out
        return Lanes(out.each + errors)

    def _runs(self, value: Tensor) -> Tensor:
        numbers: Tensor = _numbers(value)
        return numbers

    def _told(self, noisy: Tensor, *, adds: bool) -> Tensor:
        each = self._runs(noisy)
        super()._told(each[1:], adds=adds)  # the first run is the one without errors
        return noisy


def _numbers(value: Any) -> Any:
    """Those of each run in front, where they differ."""
    return value.each if isinstance(value, Lanes) else value


def _all_lanes(given: list[Tensor]) -> bool:
    return all(isinstance(tensor, Lanes) for tensor in given)
