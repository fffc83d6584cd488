"""Sizes that cases of these kernels draw: imported where cases are drawn, since ranks read this
package, too."""

from collections.abc import Callable
from typing import Any

#: What these kernels are wrong for is not that ∞ spreads, which masks by products let it.
NUMBERS = ("normal", "shifted", "equal", "outlier", "zeros")


def between(low: int, high: int) -> Callable[[Any], Any]:
    """Both ends included."""

    def draw(_: Any) -> Any:
        from hypothesis import strategies

        return strategies.integers(low, high)

    return draw


def one_of(*sizes: int) -> Callable[[Any], Any]:
    """One of these."""

    def draw(_: Any) -> Any:
        from hypothesis import strategies

        return strategies.sampled_from(sizes)

    return draw


def around(*blocks: int) -> Callable[[Any], Any]:
    """Sizes around those of blocks."""

    def draw(_: Any) -> Any:
        from tpcheck import strategies

        return strategies.widths(*blocks)

    return draw


def either() -> Callable[[Any], Any]:
    """A flag."""

    def draw(_: Any) -> Any:
        from hypothesis import strategies

        return strategies.booleans()

    return draw


def no_more_than(other: str, *sizes: int) -> Callable[[Any], Any]:
    """One of these that is at most another size."""

    def draw(drawn: Any) -> Any:
        from hypothesis import strategies

        return strategies.sampled_from([n for n in sizes if n <= drawn[other]])

    return draw
