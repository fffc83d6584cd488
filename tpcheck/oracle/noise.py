"""The reference again, under rounding errors: how far off its results are then."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.scales import Scales
from tpcheck.bounds.spread import STRAIN
from tpcheck.oracle.passes import Passes
from tpcheck.oracle.walked import Walked
from tpcheck.protocol.optimizing import main_dtype
from tpcheck.protocol.problem import Problem, Values
from tpcheck.tensors.draw import generator

Run = list[Walked]  # by problem

#: The first stream of those that pairs draw from: more single runs are never made.
PAIRS = 1 << 16


@dataclass(frozen=True)
class Noise:
    """The reference again, under rounding errors; all runs share the σ of each operation.

    Args:
        exact: the run that they deviate from.
        dtype: whose errors they are.
    """

    passes: Passes
    module: Any
    exact: Run
    dtype: torch.dtype
    _scales: Scales = field(default_factory=Scales)

    def _main(self) -> torch.dtype | None:
        """What an optimizer's step rounds in, where its parameters are copies in another dtype."""
        training = self.passes.spec.training
        return None if training is None else main_dtype(training.main, self.dtype)

    def anew(self) -> Noise:
        """The same, of which no run was made."""
        return replace(self, _scales=Scales())

    def pair(self, k: int) -> tuple[Run, Run]:
        """Two runs under the same errors, enlarged, and mirrored in the second."""
        return self.deviations(PAIRS + k, STRAIN), self.deviations(PAIRS + k, -STRAIN)

    def deviations(self, k: int, amplitude: float = 1.0) -> Run:
        """How far off a run is under the errors drawn from stream `k`."""
        case, passes = self.passes.case, self.passes
        errors = generator(case, "noise", passes.problems[0].d, k)
        flushes = case.family == "subnormal" and self.dtype != torch.float64
        if flushes:
            passes = replace(passes, problems=[_flushed(p, errors) for p in passes.problems])
        arithmetic = Arithmetic(self.dtype, case.tp, flushes)
        with RoundingNoise(arithmetic, errors, self._scales, amplitude) as noise:
            stepping = partial(noise.anew, self._main())
            run = replace(passes, stepping=stepping)(self.module)
        return [
            replace(off, values=_difference(off.values, right.values, noise.enlarged))
            for off, right in zip(run, self.exact, strict=True)
        ]


def _flushed(problem: Problem, errors: torch.Generator) -> Problem:
    """The problem with errors of their own size in the inputs below the normal range."""

    def flushed(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        below = x.abs() < torch.finfo(x.dtype).smallest_normal
        drawn = torch.randn(x.shape, dtype=torch.float64, generator=errors)
        return x.double() * (1.0 + below * drawn)

    inputs = [{n: flushed(t) for n, t in passed.items()} for passed in problem.inputs]
    return replace(problem, inputs=inputs)


def _difference(off: Values, right: Values, times: float) -> Values:
    own = beside(off, right)
    return {key: (own[key].double() - value.double()) / times for key, value in right.items()}


def beside(run: Values, right: Values) -> Values:
    """The tensors of `right` as another run gave them; NaN where rounding sent the run another way
    (a token to another expert, say), so that it has no such tensor, or one of another shape."""

    def of(own: Tensor | None, value: Tensor) -> Tensor:
        if own is not None and (own.shape == value.shape or not own.is_floating_point()):
            return own
        dtype = torch.float64 if own is None else own.dtype
        return torch.full(value.shape, torch.nan, dtype=dtype)

    return {key: of(run.get(key), value) for key, value in right.items()}
