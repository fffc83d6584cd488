"""What is expected of a case: the reference's values in float64, and how far rounding may move
each of them.

The reference runs once for the values, a few times under `RoundingNoise` for the bounds, and once
in the case's dtype for what overflows there and which dtype each output has. The first run also
shows the outputs' shapes, of which the cotangents are drawn; all others are given these.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tpcheck.bounds import floor, integers
from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.spread import Spread
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.deviations import beside
from tpcheck.oracle.effort import FLOOR, SCREEN, Effort
from tpcheck.oracle.noise import Noise, Run
from tpcheck.oracle.overflow import up_to
from tpcheck.oracle.passes import Passes
from tpcheck.oracle.producers import LARGE, Producers
from tpcheck.oracle.reference import References, build_reference
from tpcheck.oracle.repeats import check_repeats
from tpcheck.oracle.runs import (
    Low,
    first_run,
    formula_run,
    low_run,
    masked_run,
    own_run,
    sizes,
    with_cotangents,
)
from tpcheck.oracle.spreads import Errors, Key, least_of, spreads_of
from tpcheck.oracle.walked import Cotangents
from tpcheck.process.heap import keep_freed
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
        idle: parameters that the spec's optimizer does not have.
    """

    cotangents: list[Cotangents]
    values: Values
    spreads: Mapping[Key, Spread]
    own: Values
    unused: frozenset[Key]
    most: Sequence[float]
    masks: Masks
    idle: frozenset[str]


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
        of: what is run.
        exact: the values.
        noise: makes runs under rounding errors.
        drew: whether the reference drew random numbers.
    """

    def __init__(
        self, passes: Passes, of: References, exact: Run, noise: Noise, *, drew: bool
    ) -> None:
        self.passes, self.exact, self.noise = passes, exact, noise
        self._of, self._drew = of, drew
        self.noisy: list[Run] = []  # deviations from the values under rounding errors
        self.strained: list[tuple[Run, Run]] = []  # those of antithetic pairs
        self._checked = False
        large = any(t.numel() >= LARGE for p in passes.problems for t in p.params.values())
        # training is not looked at under the least bounds
        asked = large and passes.spec.training is None
        low = torch.float32 if self._is_wide else torch_dtype(passes.case)
        self._producers = Producers(low) if asked else None

    @functools.cached_property
    def own(self) -> Run:
        """The results in the case's dtype."""
        run = partial(own_run, self.passes, self._of.low)
        return run() if self._is_wide else self._noted(run)

    def _noted(self, run: Callable[[], Run]) -> Run:
        """A run whose large products are noted, where they are asked for."""
        if self._producers is not None:
            with contextlib.suppress(InvalidArgument), self._producers:
                return run()
            self._producers = None  # it runs under no mode, as some of what torch compiles
        return run()

    @property
    def notes(self) -> bool:
        """Whether `rounded` may know of anything."""
        return self._producers is not None

    def rounded(self, i: int, key: Key, at: Tensor) -> Tensor | None:
        """The variance of what the operation rounds that makes a tensor of a problem, at some of
        its elements, float64; None where that is not known."""
        if self._producers is None or self.low is None or key not in self.low.own[i].values:
            return None
        case = self.passes.case
        how = Arithmetic(torch_dtype(case), case.tp)
        found = self._producers.rounded(self.low.own[i].values[key], at, how)
        return found if found is None or not self._is_wide else found * floor.ENLARGED**2

    @functools.cached_property
    def low(self) -> Low | None:
        """What the least bounds are of."""
        return low_run(self.passes, self._of, self.exact, lambda: self.own, self._noted)

    @functools.cached_property
    def sizes(self) -> Run | None:
        """Of a case of integers: the sums of the sizes of all terms."""
        return sizes(self.passes, self._of.exact) if self.passes.case.integers else None

    def begun(self, effort: Effort) -> Effort:
        """Runs what the effort asks for, and sees whether the reference gives the same numbers each
        time. Returns the effort that can be: FLOOR is for finite numbers.

        Raises:
            InvalidArgument: it gives other numbers.
        """
        if effort is FLOOR and self._is_ordinary():
            # of float64 it is the run beside that in float32 that shows it
            self._check_repeats(self.exact if self._is_wide else self.own)
            return FLOOR
        effort = SCREEN if effort is FLOOR else effort
        own, _ = self.own, self.run(effort)
        if not self._checked:
            self._check_repeats(own)
            self._checked = True
        return effort

    @property
    def _is_wide(self) -> bool:
        return self.passes.case.dtype == "float64"

    def _is_ordinary(self) -> bool:
        """Whether all numbers are finite, none is lost for its size, and no run goes another
        way."""
        if self.low is None:
            return False
        dtype = torch_dtype(self.passes.case)
        pairs = [(self.exact, self.low.low), (self.exact, self.low.own)]
        if self._is_wide:
            pairs = [(self.exact, self.low.right), (self.low.right, self.low.low)]
        each = [both for runs in pairs for both in zip(*runs, strict=True)]
        return all(floor.is_ordinary(a.values, b.values, dtype) for a, b in each)

    def _check_repeats(self, own: Run) -> None:
        if self._of.formula is self._of.exact:
            with sdpa_kernel([SDPBackend.MATH]):
                about = (self.passes, self._of.exact, self.exact, own, self.noisy)
                check_repeats(*about, drew=self._drew, read=self.passes.random)

    def overflowed(self, effort: Effort) -> frozenset[int]:
        """The steps in which the case's dtype may overflow, under a loss that is scaled, or in the
        norm of gradients: in its own run, or in one under rounding errors of this effort."""
        spec = self.passes.spec
        if spec.norm is None and (spec.training is None or spec.training.scaling is None):
            return frozenset()
        runs = [self.own]
        if effort is not FLOOR:
            noisy, strained = self.run(effort)
            runs += [*noisy, *itertools.chain(*strained)]
        return frozenset[int]().union(*(one.overflowed for run in runs for one in run))

    def expected(self, effort: Effort, overflowed: frozenset[int] = frozenset()) -> list[Expected]:
        """What the reference gives, by problem, under bounds as close as this effort's.

        Args:
            overflowed: the steps that may, on any dp coordinate.
        """
        if effort is FLOOR:
            return [self._at_least(i) for i in range(len(self.exact))]
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
            more = (right.most, right.masks, right.idle)
            found.append(Expected(right.cotangents, values, spreads, own, unused, *more))
        return found

    def _at_least(self, i: int) -> Expected:
        """What the reference gives of one problem, under the least bounds."""
        assert self.low is not None, "else SCREEN is the least"
        right, dtype = self.exact[i], torch_dtype(self.passes.case)
        low, own, at = (run[i].values for run in (self.low.low, self.low.own, self.low.right))
        degree = self.passes.case.tp
        runs = {
            key: floor.Runs(low[key], own[key], at[key].double(), degree) for key in right.values
        }
        spreads = least_of(right.values, runs, dtype, FLOOR)
        if self.sizes:
            spreads = integers.spreads(spreads, self.sizes[i].values, dtype)
        own = right.values if self._is_wide else own
        about = (spreads, own, self._unused([], []), right.most, right.masks, right.idle)
        return Expected(right.cotangents, right.values, *about)

    def run(self, effort: Effort) -> tuple[list[Run], list[tuple[Run, Run]]]:
        """As many noisy runs, and antithetic pairs of them, as the effort asks for: those that are
        not there yet are made."""
        dtype = self.passes.case.dtype
        count, pairs = effort.runs[dtype], effort.strained
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


def study(passes: Passes, of: References) -> Study:
    """The runs of a reference: the first of them.

    Args:
        passes: the walk in float64, over problems whose cotangents are still to be drawn.
    """
    keep_freed()
    with sdpa_kernel([SDPBackend.MATH]):
        before = torch.get_rng_state()
        first = first_run(passes, of.exact)
        drew = not torch.equal(before, torch.get_rng_state())
        if drew and (masked := masked_run(passes, of.exact)) is not None:
            passes, first = replace(passes, random=True), masked
        passes = with_cotangents(passes, first)
        noise = Noise(passes, of.formula, formula_run(passes, of, first), torch_dtype(passes.case))
    return Study(passes, of, first, noise, drew=drew)
