"""Refuses a reference that gives other numbers each time it runs, and a formula for rounding that
is of another function: whatever differs between runs would pass for rounding, and nothing that a
candidate computes would be outside the bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from tpcheck.bounds.scales import SMALL, flat
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.passes import Passes
from tpcheck.oracle.walked import Walked
from tpcheck.protocol.problem import Values
from tpcheck.tensors.blocks import farthest, largest
from tpcheck.tensors.names import Shelf

#: How far two float64 runs of the same computation may be apart, of the largest number in a run:
#: far more than other kernels or another alignment make, and far less than a random number does. If
#: it were larger, bounds would grow with what the reference draws; if smaller, references that are
#: sensitive to rounding would be refused.
APART = 2.0**-26
#: The same of a run in a lower dtype, before the reference is run again: much more than bfloat16
#: rounds in most cases, and less than most random numbers change. If it were larger, more that is
#: random would pass; if smaller, more would run twice.
FAR = 2.0**-4
#: How often it is run again then: one that draws one of two numbers may draw the same once.
AGAIN = 3
#: Runs of a formula under float64's rounding errors, and how many times as far as the farthest of
#: them it may be from the reference. A formula may lose most of float64's digits where half of
#: bfloat16's cancel; one of another function is off by far more in most cases, and one is enough.
FEW, SAME = 3, 64.0


def check_repeats(
    passes: Passes,
    module: object,
    first: Sequence[Walked],
    own: Sequence[Walked],
    noisy: Sequence[Sequence[Walked]],
    *,
    drew: bool,
    read: bool = False,
) -> None:
    """Runs the reference again where a run shows a reason to.

    Args:
        first: the run in float64.
        own: in the case's dtype.
        noisy: how far off runs are under rounding errors: one that keeps numbers of its own, as a
            generator, is the same module there, and another in `own`.
        drew: whether the first run drew from torch's generator.
        read: whether all that it drew were masks, which all runs have: once tells then.

    Raises:
        InvalidArgument: it gives other numbers.
    """
    apart = APART if passes.case.dtype == "float64" else FAR
    largest = [_largest(one.values) for one in first]
    far = differs(first, own, apart=apart) is not None or any(
        _largest(one.values) > apart * size
        for run in noisy
        for one, size in zip(run, largest, strict=True)
    )
    if not drew and not far:
        return
    times = 1 if read and not far else AGAIN
    again = (differs(first, passes(module)) for _ in range(times))
    name = next((one for one in again if one is not None), None)
    if name is not None:
        raise InvalidArgument(
            f"spec {passes.spec.name!r}: the reference gives other numbers for {name!r} when it "
            "runs again, so nothing can be compared; call its eval(), or leave out what is kept "
            "from one forward to the next, and random numbers other than masks of dropout"
        )


def check_same(
    passes: Passes,
    first: Sequence[Walked],
    formula: Sequence[Walked],
    noisy: Sequence[Sequence[Walked]],
) -> None:
    """Holds a spec's `rounding` to the reference.

    Args:
        first, formula: the runs of both in float64.
        noisy: how far off runs of the formula are under float64's own rounding errors.

    Raises:
        InvalidArgument: they are two functions. What differs between them would pass for rounding.
    """
    wide: dict[tuple[str, str], float] = {}
    for run in noisy:
        for key, off in _numbers(run[0].values).items():
            wide[key] = max(SAME * _size(off), wide.get(key, 0.0))
    name = differs(first, formula, wide)
    if name is not None:
        raise InvalidArgument(
            f"spec {passes.spec.name!r}: rounding= gives other numbers for {name!r} than the "
            "reference, in float64; give another formula of the same function"
        )


def differs(
    one: Sequence[Walked],
    other: Sequence[Walked],
    wide: Mapping[tuple[str, str], float] = MappingProxyType({}),
    *,
    apart: float = APART,
) -> str | None:
    """The first tensor that two runs do not agree on.

    Args:
        apart: how far they may be apart, of the largest number in a run.
        wide: how far apart a tensor may be, where that is known to be more.
    """
    pairs = [(_numbers(a.values), _numbers(b.values)) for a, b in zip(one, other, strict=True)]
    allowed = apart * max(_largest(walked.values) for walked in one)
    return next(
        (
            name
            for mine, others in pairs
            for (kind, name), value in _in_doubt(mine, others, allowed).items()
            if _apart(value, others.get((kind, name))) > max(allowed, wide.get((kind, name), 0.0))
        ),
        None,
    )


def _in_doubt(mine: Values, others: Values, allowed: float) -> Values:
    """All but the small tensors, where none of these is apart: one look at thousands of them."""
    alike = {key for key, t in mine.items() if key in others and others[key].shape == t.shape}
    small = [key for key in mine if key in alike and mine[key].numel() <= SMALL]
    one, other = (flat(of[key] for key in small) for of in (mine, others))
    if not one.numel() or not farthest(one, other) <= allowed:
        return mine
    seen = set(small)
    return {key: t for key, t in mine.items() if key not in seen}


def _largest(values: Values) -> float:
    """The largest number of a run that is compared."""
    numbers = _numbers(values).values()
    large = [t for t in numbers if t.numel() > SMALL]
    small = flat(t for t in numbers if t.numel() <= SMALL)
    return max(map(_size, [*large, small]))


def _numbers(values: Values) -> Values:
    kept = {key: t for key, t in values.items() if key[0] != Shelf.BORDER}
    return {key: t if t.is_floating_point() else t.double() for key, t in kept.items()}


def _apart(one: Tensor, other: Tensor | None) -> float:
    if other is None or one.shape != other.shape:
        return math.inf
    if not one.numel():
        return 0.0
    if math.isfinite(apart := farthest(one, other)):
        return apart
    return 0.0 if torch.equal(one.double(), other.double()) else _size(one.double() - other)


def _size(tensor: Tensor) -> float:
    """The largest finite number of a tensor."""
    if not tensor.numel():
        return 0.0
    if math.isfinite(size := largest(tensor)):
        return size
    finite = tensor[tensor.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0
