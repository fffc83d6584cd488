"""What kinds of case ran, in words and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpcheck.errors import counted
from tpcheck.evidence.kinds import Feature, Kinds

#: Values that are said in other words than `name=value`.
_WORDS: dict[Feature, str] = {
    ("step", True): "a step",
    ("step", False): "no step",
    ("microbatches", 1): "one microbatch",
    ("microbatches", 2): "several microbatches",
    ("magnitude", -1): "small inputs",
    ("magnitude", 0): "inputs of magnitude 1",
    ("magnitude", 1): "large inputs",
    ("integers", True): "integer cases",
    ("integers", False): "cases that are not of integers",
}
#: How a size compares with the degree.
_SIZES = {
    (True, -1, False): "{} of 1",
    (False, -1, False): "{} below the degree",
    (False, 0, True): "{} equal to the degree",
    (False, 1, True): "{} twice the degree, or a larger multiple",
    (False, 1, False): "{} above the degree and no multiple of it",
}


def lines(kinds: Kinds) -> list[str]:
    """Pairs, sizes, and what did not come, with what to do about it."""
    ranges = ", ".join(f"{name} {_range(*ends)}" for name, ends in kinds.sizes.items())
    sizes = f"; sizes: {ranges}" if ranges else ""
    found = [f"{kinds.shown} of {counted(kinds.possible, 'pair')} of features ran{sizes}"]
    if kinds.waiting:
        found.append(f"drawn, and not run: {_list(kinds.waiting)}; more --examples reach it")
    if kinds.never:
        found.append(
            f"never drawn: {_list(kinds.never)}; a fault that needs one is not found: where that "
            "should be, widen the strategy in the spec's cases="
        )
    return found


def as_json(kinds: Kinds | None) -> dict[str, Any] | None:
    if kinds is None:
        return None
    return {
        "pairs": kinds.shown,
        "pairs_possible": kinds.possible,
        "not_run": [word(feature) for feature in kinds.waiting],
        "never_drawn": [word(feature) for feature in kinds.never],
        "sizes": {name: list(ends) for name, ends in kinds.sizes.items()},
    }


def word(feature: Feature) -> str:
    """`a step`, `kv_heads below the degree`, `memory=sliced`."""
    name, value = feature
    if isinstance(value, tuple):
        return _SIZES.get(value, "{}: " + str(value)).format(name)
    return _WORDS.get(feature, f"{name}={value}")


def _list(features: Sequence[Feature]) -> str:
    return ", ".join(map(word, features))


def _range(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
