"""`Plan`: entries, and what is declared about what they leave whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpcheck.errors import InvalidArgument


@dataclass(frozen=True)
class Plan:
    """A plan of tensor parallelism, with what is declared about it.

    Everything that no entry shards is an error unless it is declared; a declaration that matches
    no parameter is an error, too.

    Args:
        entries: key → style, as `parallelize_module` takes them (`ParallelStyle` objects) or as
            transformers and xorl write them (strings). Keys are module names with wildcards;
            those of string plans may name parameters. A value may be a plan itself: its keys are
            below the key, as in `{"model": BASE_PLAN, "lm_head": "colwise"}`.
        whole: patterns of parameters that are meant to stay whole on every rank.
        reduced: patterns of whole parameters whose partial gradients the framework itself sums
            over the TP group (a hook, a finalize step).
        optional: patterns of keys that may match nothing, as in a plan that serves several
            variants of a model; what they leave whole is an error all the same.
        tied: groups of parameter names that are one tensor, where the module does not show it.
    """

    entries: Mapping[str, Any]
    whole: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        for name in ("whole", "reduced", "optional", "tied"):
            require_patterns(f"the plan's {name}", getattr(self, name))
        object.__setattr__(self, "entries", dict(flattened(self.entries)))


def require_patterns(what: str, given: Any) -> None:
    """Raises `InvalidArgument` where it is one pattern: each of its letters would be one."""
    if isinstance(given, str):
        raise InvalidArgument(f"{what}={given!r}: give a tuple, as in ({given!r},)")


def flattened(entries: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Nested plans as (full key, style) pairs; a lone style applies to the module itself.

    Raises:
        InvalidArgument: a key that is not a string.
    """
    if not isinstance(entries, Mapping):
        return [(prefix, entries)]
    out: list[tuple[str, Any]] = []
    for key, style in entries.items():
        if not isinstance(key, str):
            raise InvalidArgument(f"a plan's keys are module names; {key!r} is not one")
        path = ".".join(part for part in (prefix, key) if part)
        out += flattened(style, path)
    return out


def as_plan(given: Any) -> Plan:
    """A `Plan`, or entries alone, as a `Plan`.

    Raises:
        InvalidArgument: `given` is neither.
    """
    if isinstance(given, Plan):
        return given
    if isinstance(given, Mapping) or hasattr(given, "_apply"):
        return Plan(given)
    raise InvalidArgument(
        f"a plan is a mapping of module names to styles, or a tpcheck.Plan; "
        f"this is a {type(given).__name__}"
    )
