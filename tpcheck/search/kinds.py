"""What kinds of case a search ran, and what its strategy never draws."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard

from tpcheck.case import MODEL_FORMATS, Case, Dim
from tpcheck.evidence.kinds import Feature, Kinds
from tpcheck.search.drawing import sample
from tpcheck.search.hunt import Hunt
from tpcheck.search.stream import features, shows
from tpcheck.search.trials import Trials

#: Cases of each degree that are drawn to see what a strategy can reach; none of them runs. Of what
#: one case in fifty has, fewer would say that it never comes; more takes longer than cases do.
DRAWS = 200

#: What a case may have, whatever it is of.
_ALWAYS: dict[str, Sequence[object]] = {
    "microbatches": (1, 2),
    "step": (False, True),
    "memory": MODEL_FORMATS,
    "magnitude": (-1, 0, 1),
    "integers": (False, True),
}
#: How a size may compare with a degree above 1.
_BELOW = (False, -1, False)  # and not 1: a degree of 2 has none
_SIZE = ((True, -1, False), _BELOW, (False, 0, True), (False, 1, True), (False, 1, False))


def kinds(hunt: Hunt, trials: Trials, *, draw: bool) -> Kinds:
    """Of the cases that count, beside all that were drawn.

    Args:
        draw: whether more are drawn to see what the strategy can reach.
    """
    ran = [result.case for result in trials.results.values() if result.counts]
    drawn = [*hunt.all_drawn(), *(_more(hunt) if draw else ())]
    shown = {pair for case in ran for pair in shows(case)}
    seen, had = _features([*ran, *drawn]), _features(ran)
    may = {*_may(hunt, [*ran, *drawn])}
    sizes: dict[str, tuple[float, float]] = {}
    for case in ran:
        for name, size in case.dims.items():
            if _is_size(size):
                low, high = sizes.get(name, (size, size))
                sizes[name] = min(low, size), max(high, size)
    return Kinds(
        shown=len(shown),
        possible=len(shown | {pair for case in drawn for pair in shows(case)}),
        waiting=tuple(feature for feature in seen if feature not in had and feature in may),
        never=tuple(feature for feature in sorted(may, key=str) if feature not in seen),
        sizes=sizes,
    )


def _features(cases: Iterable[Case]) -> dict[Feature, None]:
    """In the order in which they come."""
    return {feature: None for case in cases for feature in features(case)}


def _may(hunt: Hunt, cases: Iterable[Case]) -> Iterator[Feature]:
    """What cases of this check may have, in so far as that is the same for all checks."""
    spec = hunt.check.spec
    yield from (("dtype", dtype) for dtype in spec.asked(hunt.options.dtypes))
    for name, values in _ALWAYS.items():
        own = spec.memory if name == "memory" and spec.memory else values
        yield from ((name, value) for value in own)
    for case in cases:
        for name, value in case.dims.items():
            if name in spec.dims:  # a kind that it leaves out is left out on purpose
                continue
            if isinstance(value, bool):
                yield from ((name, False), (name, True))
            elif _is_size(value) and case.tp > 1:
                yield from ((name, how) for how in _SIZE if case.tp > 2 or how != _BELOW)


def _is_size(value: Dim) -> TypeGuard[int]:
    return not isinstance(value, (bool, str))


def _more(hunt: Hunt) -> Iterator[Case]:
    """What else the strategies draw; nothing where one can't be drawn from, which is told by who
    draws cases to run."""
    for degree in hunt.degrees():
        with contextlib.suppress(Exception):
            yield from sample(hunt.strategy(degree), DRAWS, f"{hunt.options.seed} {degree} kinds")
