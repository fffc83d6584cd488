"""What kinds of case ran, of those that could have: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Name and value, as `search.stream.features` gives them; of a size how it compares with the
#: degree: whether it is 1; -1, 0 or 1 for below, equal or above; whether it is a multiple.
Feature = tuple[str, object]


@dataclass(frozen=True)
class Kinds:
    """Of one check.

    Args:
        shown, possible: pairs of features of cases that ran, and of all that were drawn.
        waiting: features that were drawn, and did not run.
        never: features that cases may have and that no drawn one has.
        sizes: name → the smallest and the largest that ran.
    """

    shown: int
    possible: int
    waiting: tuple[Feature, ...] = ()
    never: tuple[Feature, ...] = ()
    sizes: Mapping[str, tuple[float, float]] = field(default_factory=dict)
