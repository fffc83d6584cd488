"""From runs of the reference to bounds: how far rounding may move each tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpcheck.bounds import floor, projection
from tpcheck.bounds.spread import MARGIN, Spread, of_integers, spreads
from tpcheck.oracle.effort import Effort
from tpcheck.oracle.passes import Passes
from tpcheck.protocol.problem import Problem, Values
from tpcheck.tensors.draw import torch_dtype
from tpcheck.tensors.names import InPass, Shelf
from tpcheck.vocabulary import Kind

Key = tuple[str, str]  # (kind, name)

#: Numbers so small that the squares of their rounding errors are zero in float64, by which σ would
#: be zero, too; and to what share of themselves they are then held.
FAINT, DIGITS = 2.0**-450, 2.0**-40

#: Elements of a tensor that is looked at together with others. Of larger ones the numbers are what
#: takes time, and copies of them would be as much memory again.
SMALL = 4096


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
    # formulas of one function differ in what they make of ∞ itself, and in no other row
    given = passes.case.family != "infinite" and any(map(_has_not_finite, passes.problems))
    about = _About(torch_dtype(passes.case), repeats, effort.chance, given)
    found: dict[Key, Spread] = {}
    for keys in _alike(values, errors.own):
        found |= zip(keys, _spreads(keys, values, errors, about), strict=True)
    every = {key: found[key] for key in values}
    return every | _as_before(every) if about.dtype == torch.float64 else every


def _as_before(found: Mapping[Key, Spread]) -> dict[Key, Spread]:
    """Of parameters after the later steps: σ of each number is at least what it was after the
    first. A jump stays, and in few pairs that of a later step may take it back each time."""
    later: dict[Key, Spread] = {}
    first: dict[str, Spread] = {}
    for key, spread in found.items():
        if key[0] == Kind.PARAM:
            base = InPass.parse(key[1]).base
            if (before := first.get(base)) is not None:
                spread = replace(spread, sigma=spread.sigma.maximum(before.sigma))
                later[key] = spread
            first[base] = spread
    return later


@dataclass(frozen=True)
class _About:
    """What the bounds of all tensors depend on.

    Args:
        dtype: the case's.
        repeats: as of `projection.scales`.
        chance: of an alarm over a correct tensor.
        given: whether numbers that are not finite may follow from those that were given: they must
            then be the same. Where all that was given is finite they say nothing of the candidate.
    """

    dtype: torch.dtype
    repeats: int
    chance: float
    given: bool


def _alike(values: Values, own: Values) -> list[list[Key]]:
    """Tensors that are looked at together: small ones of one shape and dtype, as a layer's in each
    of many steps."""
    found: dict[object, list[Key]] = {}
    for key, value in values.items():
        low = own[key]
        alone = value.numel() > SMALL or not low.is_floating_point()
        found.setdefault(key if alone else (value.shape, low.dtype, _is_reduced(key)), []).append(
            key
        )
    return [*found.values()]


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


def _spreads(keys: list[Key], values: Values, errors: Errors, about: _About) -> list[Spread]:
    """How far rounding may move tensors that are alike."""
    if not errors.own[keys[0]].is_floating_point():
        return [_of_integers(key, values[key], errors, about) for key in keys]
    low, value = _stacked(errors.own, keys), _stacked(values, keys).double()
    noisy = torch.stack([_stacked(off, keys) for off in errors.noisy])
    strained = None
    if errors.strained:
        ups, downs = zip(*errors.strained, strict=True)
        up, down = ([_stacked(off, keys) for off in signs] for signs in (ups, downs))
        strained = torch.stack(up), torch.stack(down)
    finite = low.isfinite() & value.isfinite()
    own = torch.where(finite, low.double() - value, 0.0)
    # what overflows in the case's dtype may overflow, or not, in another order too
    found = spreads(
        noisy, own, dtype=about.dtype, finite=finite, strained=strained, chance=about.chance
    )
    sigma = torch.stack([one.sigma for one in found])
    sigma = torch.where(value.abs() < FAINT, sigma.maximum(value.abs() * DIGITS), sigma)
    if about.given:
        same = (low.double() == value) | (low.isnan() & value.isnan())
        sigma = torch.where(same & ~finite, 0.0, sigma)
    elements = value[0].numel()
    # equal numbers are rounded alike, which the noise does not know
    most = max(1.0, elements / about.repeats)
    # an output in a wider dtype may be of numbers that were computed in the case's
    largest = min(torch.finfo(about.dtype).max, torch.finfo(low.dtype).max)
    found = [
        replace(one, sigma=each, independent=min(one.independent, most), largest=largest)
        for one, each in zip(found, sigma, strict=True)
    ]
    if not _is_reduced(keys[0]) or not elements:
        return found
    wide = about.dtype == torch.float64
    gains = projection.scales(value, sigma, noisy, own, strained, repeats=about.repeats, wide=wide)
    margin = MARGIN.get(about.dtype, 1.0)
    return [
        replace(one, gain=gain * margin, runs=samples, elements=elements)
        for one, (gain, samples) in zip(found, gains, strict=True)
    ]


def _stacked(values: Values, keys: list[Key]) -> Tensor:
    """[tensors, ...]; of one tensor a view."""
    if len(keys) == 1:
        return values[keys[0]].unsqueeze(0)
    return torch.stack([values[key] for key in keys])


def _of_integers(key: Key, value: Tensor, errors: Errors, about: _About) -> Spread:
    noisy = [off[key] for off in errors.noisy]
    strained = [(up[key], down[key]) for up, down in errors.strained]
    low, value = errors.own[key].double(), value.double()
    own = torch.where(low.isfinite() & value.isfinite(), low - value, 0.0)
    bools = errors.own[key].dtype == torch.bool
    return of_integers(noisy, own, bools=bools, strained=strained, chance=about.chance)
