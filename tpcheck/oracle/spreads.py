"""From runs of the reference to bounds: how far rounding may move each tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpcheck.bounds import floor, projection
from tpcheck.bounds.spread import MARGIN, Spread, of_integers, spread
from tpcheck.oracle.effort import Effort
from tpcheck.oracle.passes import Passes
from tpcheck.protocol.problem import Problem, Values
from tpcheck.tensors.draw import torch_dtype
from tpcheck.tensors.names import Shelf
from tpcheck.vocabulary import Kind

Key = tuple[str, str]  # (kind, name)

#: Numbers so small that the squares of their rounding errors are zero in float64, by which σ would
#: be zero, too; and to what share of themselves they are then held.
FAINT, DIGITS = 2.0**-450, 2.0**-40


@dataclass(frozen=True)
class Errors:
    """What the runs of one problem show of rounding.

    Args:
        noisy: deviations of the noisy runs.
        own: the results in the case's dtype.
        strained: deviations of the antithetic pairs.
    """

    noisy: Sequence[Values]
    own: Values
    strained: Sequence[tuple[Values, Values]]


def spreads_of(
    passes: Passes, i: int, values: Values, errors: Errors, effort: Effort
) -> dict[Key, Spread]:
    """How far rounding may move each tensor of problem `i`."""
    expanded, equal = passes.case.memory == "expanded", passes.case.family == "equal"
    inputs = passes.problems[i].inputs[0]
    repeats = projection.repeats_of(inputs, expanded=expanded, equal=equal)
    dtype = torch_dtype(passes.case)
    # formulas of one function differ in what they make of ∞ itself, and in no other row
    given = passes.case.family != "infinite" and any(map(_has_not_finite, passes.problems))
    return {
        key: _spread(key, value, errors, dtype, repeats, effort.chance, given=given)
        for key, value in values.items()
    }


def least_of(
    values: Values,
    runs: Mapping[Key, floor.Runs],
    dtype: torch.dtype,
    effort: Effort,
) -> dict[Key, Spread]:
    """How far rounding may move each tensor at least (`bounds/floor`)."""
    return {
        key: floor.least(
            value.double(), runs[key], dtype, chance=effort.chance, reduced=_is_reduced(key)
        )
        for key, value in values.items()
    }


def _is_reduced(key: Key) -> bool:
    return key[0] != Shelf.BORDER and Kind(key[0]).is_reduced


def _has_not_finite(problem: Problem) -> bool:
    """Whether any number that was drawn, or given by the spec, is infinite or NaN."""
    drawn = [problem.params, *problem.inputs, *problem.cotangents]
    return any(not bool(t.isfinite().all()) for tensors in drawn for t in tensors.values())


def _spread(
    key: Key,
    value: Tensor,
    errors: Errors,
    dtype: torch.dtype,
    repeats: int,
    chance: float,
    *,
    given: bool,
) -> Spread:
    """How far rounding may move one tensor.

    Args:
        given: whether numbers that are not finite may follow from those that were given: they must
            then be the same. Where all that was given is finite they say nothing of the candidate.
    """
    noisy = [off[key] for off in errors.noisy]
    strained = [(up[key], down[key]) for up, down in errors.strained]
    low, value = errors.own[key], value.double()
    finite = low.isfinite() & value.isfinite()
    own = torch.where(finite, low.double() - value, 0.0)
    if not low.is_floating_point():
        ones = low.dtype == torch.bool
        return of_integers(noisy, own, bools=ones, strained=strained, chance=chance)
    found = spread(noisy, own, dtype=dtype, strained=strained, chance=chance)
    # what overflows in the case's dtype may overflow, or not, in another order too
    sigma = torch.where(finite, found.sigma, torch.full_like(found.sigma, torch.inf))
    sigma = torch.where(value.abs() < FAINT, sigma.maximum(value.abs() * DIGITS), sigma)
    if given:
        same = (low.double() == value) | (low.isnan() & value.isnan())
        sigma = torch.where(same & ~finite, 0.0, sigma)
    # equal numbers are rounded alike, which the noise does not know
    independent = min(found.independent, max(1.0, value.numel() / repeats))
    # an output in a wider dtype may be of numbers that were computed in the case's
    largest = min(torch.finfo(dtype).max, torch.finfo(low.dtype).max)
    found = replace(found, sigma=sigma, independent=independent, largest=largest)
    if not _is_reduced(key) or not value.numel():
        return found
    scale, samples = projection.scale(value, sigma, noisy, own, strained, repeats=repeats)
    scale *= MARGIN.get(dtype, 1.0)
    return replace(found, gain=scale, runs=samples, elements=value.numel())
