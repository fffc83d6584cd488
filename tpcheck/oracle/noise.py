"""The reference again, under rounding errors: how far off its results are then."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.scales import Scales, flat
from tpcheck.bounds.spread import STRAIN
from tpcheck.oracle.over_cores import over_cores
from tpcheck.oracle.passes import Passes
from tpcheck.oracle.walked import Walked
from tpcheck.protocol.optimizing import main_dtype
from tpcheck.protocol.problem import Problem, Values
from tpcheck.tensors.draw import generator

Run = list[Walked]  # by problem

#: The first stream of those that pairs draw from: more single runs are never made.
PAIRS = 1 << 16


#: How much work runs are, as `Scales.size` counts it, that are spread over the processors: some
#: tenths of a second. With less, small cases wait longer for processes than they compute; with
#: more, cases of middling size leave processors idle.
WORTH = 10_000


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

    def several(self, singles: range, pairs: range) -> tuple[list[Run], list[tuple[Run, Run]]]:
        """The runs under the errors of these streams, and as many pairs: two under the same errors,
        enlarged, and mirrored in the second."""
        streams = [(k, 1.0) for k in singles]
        streams += [(PAIRS + k, sign * STRAIN) for k in pairs for sign in (1.0, -1.0)]
        found: list[Run] = []
        if not self._scales.known and streams:
            found.append(self.deviations(*streams.pop(0)))
        runs = [partial(self.deviations, *stream) for stream in streams]
        if len(runs) * self._scales.size < WORTH:
            found += [run() for run in runs]
        else:
            found += over_cores(runs, _packed, self._unpacked)
        strained = iter(found[len(singles) :])
        return found[: len(singles)], list(zip(strained, strained, strict=True))

    def _unpacked(self, run: list[_Packed]) -> Run:
        """A run that another process has made."""
        found = []
        for right, own in zip(self.exact, run, strict=True):
            sizes = [value.numel() for value in right.values.values()]
            parts = torch.from_numpy(own.values).split(sizes)
            each = zip(right.values.items(), parts, strict=True)
            values = {key: part.view(value.shape) for (key, value), part in each}
            found.append(replace(right, values=values, unused=own.unused))
        return found

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


@dataclass(frozen=True)
class _Packed:
    """What is handed over of a walk: its deviations one after the other, and its gradients that are
    None."""

    values: Any  # numpy's, which is handed over at once
    unused: frozenset[tuple[str, str]]


def _packed(run: Run) -> list[_Packed]:
    return [_Packed(flat(one.values.values()).numpy(), one.unused) for one in run]


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
