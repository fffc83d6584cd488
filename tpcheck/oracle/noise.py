"""The reference again, under rounding errors: how far off its results are then."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.lanes import Drawn, NoiseInLanes
from tpcheck.bounds.noise import ENLARGED, RoundingNoise
from tpcheck.bounds.scales import Scales
from tpcheck.bounds.spread import STRAIN, WIDE_STRAIN
from tpcheck.oracle.batches import PAIRS, Batch, cut
from tpcheck.oracle.deviations import difference, kept
from tpcheck.oracle.effort import CLOSER, SCREEN
from tpcheck.oracle.over_cores import over_cores
from tpcheck.oracle.packed import Packed, packed
from tpcheck.oracle.passes import Passes
from tpcheck.oracle.repeats import differs
from tpcheck.oracle.walked import Walked
from tpcheck.protocol.optimizing import main_dtype
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.dispatch import eagerly
from tpcheck.tensors.draw import generator
from tpcheck.tensors.lanes import Apart, in_run, lanes_of, spread_over

Run = list[Walked]  # by problem

#: Of a pair's errors in float64, what they are of `STRAIN` times those of single runs.
WIDE = WIDE_STRAIN / STRAIN / ENLARGED

#: How much work runs are, as `Scales.size` counts it, that are spread over the processors: some
#: tenths of a second. With less, small cases wait longer for processes than they compute; with
#: more, cases of middling size leave processors idle.
WORTH = 10_000

#: Runs, at most, that are made at once. With more, they take more memory, and can't be spread over
#: as many processors; with fewer, small cases cost what Python's part in each operation costs.
AT_ONCE = 18
#: Numbers of runs, in all, up to which they are made at once: a quarter of a gigabyte. Beyond it,
#: operations are large and gain nothing.
MOST_NUMBERS = 1 << 25


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

    @property
    def coarse(self) -> bool:
        """Whether anything of a case in float64 is computed in a dtype with fewer digits, as far as
        runs have shown."""
        return self._scales.coarse

    def anew(self) -> Noise:
        """The same, of which no run was made."""
        return replace(self, _scales=Scales())

    def several(self, singles: range, pairs: range) -> tuple[list[Run], list[tuple[Run, Run]]]:
        """The runs under the errors of these streams, and as many pairs: two under the same errors,
        enlarged, and mirrored in the second. Their numbers depend neither on what else is asked for
        nor on the processors."""
        dtype = self.passes.case.dtype
        few = SCREEN.runs[dtype]
        found = self._few(range(singles.start, min(singles.stop, few)))
        ends = [few, CLOSER.runs[dtype]]  # what one effort asks for is made at once
        parts = cut(range(max(singles.start, few), singles.stop), ends, AT_ONCE)
        batches = [Batch(part, range(0)) for part in parts]
        batches += [Batch(range(0), part) for part in cut(pairs, [], AT_ONCE // 2)]
        strained: list[tuple[Run, Run]] = []
        for batch, runs in zip(batches, self._each(batches), strict=True):
            alone = len(batch.singles)
            found += runs[:alone]
            strained += zip(runs[alone::2], runs[alone + 1 :: 2], strict=True)
        return found, strained

    def _few(self, streams: range) -> list[Run]:
        """Runs one after the other, the first of which finds the σ of each operation."""
        first = [self.deviations(k) for k in streams[:1]]
        rest = [Batch(range(k, k + 1), range(0)) for k in streams[1:]]
        return first + [run for runs in self._in_turn(rest) for run in runs]

    def deviations(self, k: int, amplitude: float = 1.0) -> Run:
        """How far off a run is under the errors drawn from stream `k`. The first one made is NaN
        where what overflows can lead to NaN: its size does not tell, since a softmax and a norm
        make numbers near 1 of all."""
        first = not self._scales.known
        run, may_overflow = self._run(k, amplitude)
        if not (first and may_overflow):
            return run
        with contextlib.suppress(Exception):  # a reference may refuse NaN
            lost, _ = self._run(k, amplitude, lost=True)
            each = zip(run, lost, self.exact, strict=True)
            return [
                replace(
                    o,
                    values=kept(o.values, n.values, e.values),
                    overflowed=o.overflowed | n.overflowed,
                )
                for o, n, e in each
            ]
        return run

    def _run(self, k: int, amplitude: float, *, lost: bool = False) -> tuple[Run, bool]:
        """How far off it is, and whether a number in it may overflow."""
        errors = generator(self.passes.case, "noise", self.passes.problems[0].d, k)
        passes = self.passes
        if self._arithmetic.flushes:
            passes = replace(passes, problems=[_flushed(p, errors) for p in passes.problems])
        about, wide = (self._arithmetic, errors, self._scales), self._is_wide and k >= PAIRS
        noise = RoundingNoise(*about, amplitude * WIDE if wide else amplitude, lost=lost)
        times = 1.0 if wide else noise.enlarged
        run = self._off(self._walked(passes, self.module, noise), times)
        if self.coarse:
            other = RoundingNoise(*about, amplitude, lost=lost, coarse=True)
            run = _sum(run, self._off(self._walked(passes, self.module, other), other.enlarged))
        return run, noise.may_overflow

    def _each(self, batches: Sequence[Batch]) -> list[list[Run]]:
        if batches and self._numbers * max(b.count for b in batches) <= MOST_NUMBERS:
            alone = [partial(self._alone, batch) for batch in batches]
            made = [partial(self._made, batch) for batch in batches]
            # in other processes: operators may not survive tensors that are none of torch's own
            return over_cores(made, packed, self._unpacked, least=1, instead=alone)
        return self._in_turn(batches)

    def _in_turn(self, batches: Sequence[Batch]) -> list[list[Run]]:
        """The runs of each, one after the other: over the processors, where that is worth it."""
        alone = [partial(self._alone, batch) for batch in batches]
        if sum(batch.count for batch in batches) * self._scales.size < WORTH:
            return [runs() for runs in alone]
        return over_cores(alone, packed, self._unpacked, least=1)

    def _made(self, batch: Batch) -> list[Run]:
        """The runs of a batch, at once where that can be."""
        with contextlib.suppress(Exception):  # whatever a reference does with its tensors
            return self._at_once(batch)
        return self._alone(batch)

    def _alone(self, batch: Batch) -> list[Run]:
        """The same, one after the other."""
        return [self.deviations(*stream) for stream in batch.streams]

    def _at_once(self, batch: Batch) -> list[Run]:
        """
        Raises:
            Apart: the runs go different ways, or a run in them is not what it is alone.
            Exception: the reference takes no tensors but torch's own.
        """
        if self._arithmetic.flushes:
            raise Apart("each run has inputs of its own")
        strain = STRAIN * WIDE if self._is_wide else STRAIN
        drawn = Drawn(len(batch.singles), len(batch.pairs), strain)
        case, d = self.passes.case, self.passes.problems[0].d
        errors = generator(case, "noise at once", d, *batch.starts)
        module = self.module
        if isinstance(module, nn.Module):
            module = spread_over(copy.deepcopy(module), drawn.count)
        passes = replace(self.passes, lift=partial(lanes_of, count=drawn.count))
        noise = NoiseInLanes(self._arithmetic, errors, self._scales, drawn)
        run = self._walked(passes, module, noise)
        if self.coarse:
            raise Apart("each run is one of two kinds of errors")
        each = [_in_run(run, number) for number in range(drawn.count)]
        if (name := differs(self.exact, each[0])) is not None:
            raise Apart(f"{name}: without errors it is not what one run gives")
        alone, pairs = each[1 : 1 + drawn.singles], each[1 + drawn.singles :]
        times = 1.0 if self._is_wide else noise.enlarged
        found = [self._off(one, noise.enlarged) for one in alone]
        return found + [self._off(one, times) for one in pairs]

    @property
    def _numbers(self) -> int:
        """How many a run has: in the results of its operations, and in what it is given."""
        problems = self.passes.problems
        given = [*problems[0].params.values()]
        given += [t for p in problems for inputs in p.inputs for t in inputs.values()]
        return self._scales.numbers + sum(t.numel() for t in given)

    @property
    def _is_wide(self) -> bool:
        """Whether pairs have errors of float64's own size."""
        return self.dtype == torch.float64

    @property
    def _arithmetic(self) -> Arithmetic:
        case = self.passes.case
        flushes = case.family == "subnormal" and self.dtype != torch.float64
        degree = case.tp
        if self.passes.spec.training is not None:  # a step of those that save, of other sums
            degree = max(degree, case.saved_at)
        return Arithmetic(self.dtype, degree, flushes)

    def _main(self) -> torch.dtype | None:
        """What an optimizer's step rounds in, where its parameters are copies in another dtype."""
        training = self.passes.spec.training
        return None if training is None else main_dtype(training.main, self.dtype)

    def _walked(self, passes: Passes, module: Any, noise: RoundingNoise) -> Run:
        with eagerly(), noise:
            return replace(passes, stepping=partial(noise.anew, self._main()))(module)

    def _off(self, run: Run, times: float) -> Run:
        """How far off it is, of errors that are so many times as large."""
        return [
            replace(off, values=difference(off.values, right.values, times))
            for off, right in zip(run, self.exact, strict=True)
        ]

    def _unpacked(self, runs: Sequence[list[Packed]]) -> list[Run]:
        """Those that another process has made."""
        return [
            [one.unpacked(right) for right, one in zip(self.exact, run, strict=True)]
            for run in runs
        ]


def _sum(run: Run, other: Run) -> Run:
    """The deviations of both."""
    return [
        replace(
            a,
            values={key: off + b.values[key] for key, off in a.values.items()},
            unused=a.unused | b.unused,
            overflowed=a.overflowed | b.overflowed,
        )
        for a, b in zip(run, other, strict=True)
    ]


def _in_run(run: Run, number: int) -> Run:
    """One of several runs that were made at once."""
    return [
        replace(one, values={key: in_run(t, number) for key, t in one.values.items()})
        for one in run
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
