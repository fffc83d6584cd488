"""What is expected of a case: the reference's values in float64, and how far rounding may move
each of them.

The reference runs once for the values, a few times under `RoundingNoise` for the bounds, and once
in the case's dtype for what overflows there and which dtype each output has. The first run also
shows the outputs' shapes, of which the cotangents are drawn; all others are given these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tpcheck.bounds import integers
from tpcheck.bounds.spread import Spread
from tpcheck.case import Case
from tpcheck.oracle.effort import Effort
from tpcheck.oracle.noise import Noise, Run, beside
from tpcheck.oracle.overflow import up_to
from tpcheck.oracle.passes import Passes
from tpcheck.oracle.reference import References, ask, build_reference, draw_cotangents
from tpcheck.oracle.repeats import FEW, check_repeats, check_same
from tpcheck.oracle.spreads import Errors, Key, spreads_of
from tpcheck.oracle.walked import Cotangents
from tpcheck.protocol.problem import Masks, Problem, Values
from tpcheck.spec import Spec
from tpcheck.tensors.draw import torch_dtype


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
    found = study(passes, of, effort)
    return found.expected(effort, found.overflowed)


def evaluate(spec: Spec, case: Case, *problems: Problem) -> list[Values]:
    """What the reference gives in float64 for problems that may have been altered: one, or those
    of all dp coordinates where they share their gradients."""
    passes = Passes(spec, case, problems, torch.float64, random=bool(problems[0].masks))
    run = passes(build_reference(spec, case))
    return [one.values for one in run]


# ---- the runs


class Study:
    """All runs of the reference on the same numbers. Closer bounds take more noisy runs, beside
    those that were made for others.

    Args:
        passes: the walk in float64, over problems with their cotangents.
        exact: the values.
        own: the results in the case's dtype.
        noise: makes runs under rounding errors.
        sizes: of a case of integers: the sums of the sizes of all terms.
    """

    def __init__(
        self, passes: Passes, exact: Run, own: Run, noise: Noise, sizes: Run | None
    ) -> None:
        self.passes, self.exact, self.own = passes, exact, own
        self.noise, self.sizes = noise, sizes
        self.noisy: list[Run] = []  # deviations from the values under rounding errors
        self.strained: list[tuple[Run, Run]] = []  # those of antithetic pairs

    @property
    def overflowed(self) -> frozenset[int]:
        """The steps in which the case's dtype may overflow under a loss that is scaled."""
        return frozenset[int]().union(*(one.overflowed for one in self.own))

    def expected(self, effort: Effort, overflowed: frozenset[int] = frozenset()) -> list[Expected]:
        """What the reference gives, by problem, under bounds as close as this effort's.

        Args:
            overflowed: the steps that may, on any dp coordinate.
        """
        noisy, strained = self.run(effort)
        unused = self._unused(noisy, strained)
        found = []
        for i, right in enumerate(self.exact):
            own = beside(self.own[i].values, right.values)
            pairs = [(up[i].values, down[i].values) for up, down in strained]
            errors = Errors([run[i].values for run in noisy], own, pairs)
            spreads = spreads_of(self.passes, i, right.values, errors, effort)
            if self.sizes:
                dtype = torch_dtype(self.passes.case)
                spreads = integers.spreads(spreads, self.sizes[i].values, dtype)
            values = up_to(overflowed, right.values)
            more = (right.most, right.masks)
            found.append(Expected(right.cotangents, values, spreads, own, unused, *more))
        return found

    def run(self, effort: Effort) -> tuple[list[Run], list[tuple[Run, Run]]]:
        """As many noisy runs, and antithetic pairs of them, as the effort asks for: those that are
        not there yet are made."""
        dtype = self.passes.case.dtype
        count, pairs = effort.runs[dtype], 0 if dtype == "float64" else effort.strained
        with sdpa_kernel([SDPBackend.MATH]):  # the decomposed form, whose roundings are modelled
            singles, strained = range(len(self.noisy), count), range(len(self.strained), pairs)
            noisy, more = self.noise.several(singles, strained)
        self.noisy, self.strained = self.noisy + noisy, self.strained + more
        return self.noisy[:count], self.strained[:pairs]

    def forget(self) -> None:
        """Keeps no noisy run; they would be made again, the same."""
        self.noisy, self.strained, self.noise = [], [], self.noise.anew()

    def _unused(self, noisy: Sequence[Run], strained: Sequence[tuple[Run, Run]]) -> frozenset[Key]:
        """Gradients that are None in any float64 run: rounding may choose another path."""
        runs = [self.exact, *noisy, *(run for pair in strained for run in pair)]
        return frozenset[Key]().union(*(one.unused for run in runs for one in run))


def study(passes: Passes, of: References, effort: Effort) -> Study:
    """The runs of a reference, as many as this effort asks for.

    Args:
        passes: the walk in float64, over problems whose cotangents are still to be drawn.

    Raises:
        InvalidArgument: it gives other numbers each time.
    """
    with sdpa_kernel([SDPBackend.MATH]):
        before = torch.get_rng_state()
        first = first_run(passes, of.exact)
        drew = not torch.equal(before, torch.get_rng_state())
        if drew and (masked := _masked_run(passes, of.exact)) is not None:
            passes, first = replace(passes, random=True), masked
        passes = _with_cotangents(passes, first)
        noise = Noise(passes, of.formula, _formula_run(passes, of, first), torch_dtype(passes.case))
    sizes = _sizes(passes, of.exact) if passes.case.integers else None
    found = Study(passes, first, own_run(passes, of.low), noise, sizes)
    noisy, _ = found.run(effort)
    if of.formula is of.exact:
        with sdpa_kernel([SDPBackend.MATH]):
            check_repeats(passes, of.exact, first, found.own, noisy, drew=drew)
    return found


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
