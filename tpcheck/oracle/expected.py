"""What is expected of a case: the reference's values in float64, and how far rounding may move
each of them.

The reference runs once for the values, a few times under `RoundingNoise` for the bounds, and once
in the case's dtype for what overflows there and which dtype each output has. The first run also
shows the outputs' shapes, of which the cotangents are drawn; all others are given these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tpcheck.bounds import integers
from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.scales import Scales
from tpcheck.bounds.spread import STRAIN, Spread
from tpcheck.case import Case
from tpcheck.oracle.effort import Effort
from tpcheck.oracle.passes import Passes
from tpcheck.oracle.reference import References, ask, build_reference, draw_cotangents
from tpcheck.oracle.repeats import FEW, check_repeats, check_same
from tpcheck.oracle.spreads import Errors, Key, spreads_of
from tpcheck.oracle.walked import Cotangents, Walked
from tpcheck.protocol.optimizing import main_dtype
from tpcheck.protocol.problem import Masks, Problem, Values
from tpcheck.spec import Spec
from tpcheck.tensors.draw import generator, torch_dtype

Run = list[Walked]  # by problem


@dataclass(frozen=True)
class Expected:
    """What is expected on one dp coordinate.

    Args:
        cotangents: those drawn, by microbatch: full tensors in the case's dtype.
        values: every tensor that is compared, float64.
        spreads: how far rounding may move each.
        own: the same tensors as the reference gives them in the case's dtype.
        unused: gradients that are None in the reference.
        most: what the gradients' norm is clipped to, by step.
        masks: those that its forwards draw.
    """

    cotangents: list[Cotangents]
    values: Values
    spreads: Mapping[Key, Spread]
    own: Values
    unused: frozenset[Key]
    most: Sequence[float]
    masks: Masks


def expect(passes: Passes, of: References, effort: Effort) -> list[Expected]:
    """What the reference gives, by problem.

    Args:
        passes: the walk in float64, over problems whose cotangents are still to be drawn.
    """
    runs = _runs(passes, of, effort)
    sizes = _sizes(runs.passes, of.exact) if passes.case.integers else None
    unused = runs.unused()
    expected = []
    for i, right in enumerate(runs.exact):
        spreads = spreads_of(runs.passes, i, right.values, runs.errors(i), effort)
        if sizes:
            spreads = integers.spreads(spreads, sizes[i].values, torch_dtype(passes.case))
        own, more = runs.own_values(i), (right.most, right.masks)
        expected.append(Expected(right.cotangents, right.values, spreads, own, unused, *more))
    return expected


def evaluate(spec: Spec, case: Case, *problems: Problem) -> list[Values]:
    """What the reference gives in float64 for problems that may have been altered: one, or those
    of all dp coordinates where they share their gradients."""
    passes = Passes(spec, case, problems, torch.float64, random=bool(problems[0].masks))
    run = passes(build_reference(spec, case))
    return [one.values for one in run]


# ---- the runs


@dataclass(frozen=True)
class Runs:
    """All runs of the reference on the same numbers.

    Args:
        passes: the walk in float64, over problems with their cotangents.
        exact: the values.
        noisy: deviations from them under rounding errors.
        strained: deviations of antithetic pairs.
        own: the results in the case's dtype.
    """

    passes: Passes
    exact: Run
    noisy: list[Run]
    strained: list[tuple[Run, Run]]
    own: Run

    def errors(self, i: int) -> Errors:
        """What they show of problem `i`."""
        pairs = [(up[i].values, down[i].values) for up, down in self.strained]
        return Errors([run[i].values for run in self.noisy], self.own_values(i), pairs)

    def own_values(self, i: int) -> Values:
        """The results of problem `i` in the case's dtype."""
        return _beside(self.own[i].values, self.exact[i].values)

    def unused(self) -> frozenset[Key]:
        """Gradients that are None in any float64 run: rounding may choose another path."""
        runs = [self.exact, *self.noisy, *(run for pair in self.strained for run in pair)]
        return frozenset[Key]().union(*(one.unused for run in runs for one in run))


def _runs(passes: Passes, of: References, effort: Effort) -> Runs:
    dtype = passes.case.dtype
    with sdpa_kernel([SDPBackend.MATH]):  # the decomposed form, whose roundings can be modelled
        before = torch.get_rng_state()
        first = first_run(passes, of.exact)
        drew = not torch.equal(before, torch.get_rng_state())
        if drew and (masked := _masked_run(passes, of.exact)) is not None:
            passes, first = replace(passes, random=True), masked
        passes = _with_cotangents(passes, first)
        noise = Noise(passes, of.formula, _formula_run(passes, of, first), torch_dtype(passes.case))
        count = effort.runs[dtype]
        noisy = [noise.deviations(k) for k in range(count)]
        pairs = range(count, count + effort.strained) if dtype != "float64" else ()
        strained = [(noise.deviations(k, STRAIN), noise.deviations(k, -STRAIN)) for k in pairs]
    own = own_run(passes, of.low)
    if of.formula is of.exact:
        with sdpa_kernel([SDPBackend.MATH]):
            check_repeats(passes, of.exact, first, own, noisy, drew=drew)
    return Runs(passes, first, noisy, strained, own)


def first_run(passes: Passes, module: Any) -> Run:
    """The values, in float64; its cotangents are drawn as soon as an output's shape is known."""
    draw = partial(draw_cotangents, passes.case)
    run: Run = ask(passes.spec, "reference's forward or backward", passes, module, draw)
    return run


def _masked_run(passes: Passes, module: Any) -> Run | None:
    """The values with random masks that all runs have; None where it draws something else."""
    run = first_run(replace(passes, random=True), module)
    drawn = any(one.masks for one in run) and not any(one.unread for one in run)
    return run if drawn else None


def _formula_run(passes: Passes, of: References, first: Run) -> Run:
    """What rounding is studied on, in float64: it must be the reference's function."""
    if of.formula is of.exact:
        return first
    run: Run = ask(passes.spec, "rounding's forward or backward", passes, of.formula)
    noise = Noise(passes, of.formula, run, torch.float64)
    check_same(passes, first, run, [noise.deviations(k) for k in range(FEW)])
    return run


def own_run(passes: Passes, low: Any) -> Run:
    """In the case's dtype, with torch's own choice of kernels: another order of the same
    computation."""
    return replace(passes, dtype=torch_dtype(passes.case))(low)


def _with_cotangents(passes: Passes, first: Run) -> Passes:
    """The same walk over problems that have the cotangents of the first run."""
    pairs = zip(passes.problems, first, strict=True)
    problems = [
        replace(problem, cotangents=one.cotangents, most=list(one.most), masks=dict(one.masks))
        for problem, one in pairs
    ]
    return replace(passes, problems=problems)


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
    beside = _beside(off, right)
    return {key: (beside[key].double() - value.double()) / times for key, value in right.items()}


def _beside(run: Values, right: Values) -> Values:
    """The tensors of `right` as another run gave them; NaN where rounding sent the run another way
    (a token to another expert, say), so that it has no such tensor, or one of another shape."""

    def beside(own: Tensor | None, value: Tensor) -> Tensor:
        if own is not None and (own.shape == value.shape or not own.is_floating_point()):
            return own
        dtype = torch.float64 if own is None else own.dtype
        return torch.full(value.shape, torch.nan, dtype=dtype)

    return {key: beside(run.get(key), value) for key, value in right.items()}


def _sizes(passes: Passes, module: Any) -> Run:
    """The values of a linear spec over the sizes of all drawn numbers: Σ |term| of each element."""

    def of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {n: t.abs() if t.is_floating_point() else t for n, t in tensors.items()}

    positive = [
        Problem(
            p.d,
            params=of(p.params),
            inputs=[of(inputs) for inputs in p.inputs],
            cotangents=[of(cotangents) for cotangents in p.cotangents],
            masks=p.masks,
        )
        for p in passes.problems
    ]
    return replace(passes, problems=positive, watch=None)(module)
