"""What users hand over is checked where it is made: one line that says what was given, what is
allowed, and where."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from tpcheck.errors import InvalidArgument, shown

#: Characters of a name. It stands in every line about a check; a longer one fills the terminal.
LONGEST_NAME = 200
A_NAME = f"a printable text of 1 to {LONGEST_NAME} characters"


def demand(
    owner: object, field: str, fits: bool, what: str, *, kind: Any = InvalidArgument
) -> None:
    """Raises where the field of `owner` does not fit.

    Args:
        what: what to give instead.
        kind: of the error: a class of `InvalidArgument`.
    """
    if not fits:
        value, name = shown(getattr(owner, field)), getattr(owner, "name", "")
        of = f" of {name!r}" if field != "name" and is_name(name) else ""
        raise kind(f"{type(owner).__name__}({field}={value}){of}: give {what}")


def demand_callables(owner: object, *fields: str, optional: bool = False) -> None:
    """Raises where one of the fields can't be called, nor is None where it is `optional`."""
    for field in fields:
        value = getattr(owner, field)
        what = "a function" + (", or None" if optional else "")
        demand(owner, field, callable(value) or (optional and value is None), what)


def demand_takes(owner: object, field: str, *arguments: str) -> None:
    """Raises where a function can't be called with these arguments, in their order."""
    if (why := refuses(getattr(owner, field), *arguments)) is not None:
        what = f"a function that is called with ({', '.join(arguments)}); it is not: {why}"
        demand(owner, field, fits=False, what=what)


def refuses(function: Any, *arguments: str) -> str | None:
    """Why it can't be called with these arguments; None where it can, or has no signature. Of what
    wraps a function its own is asked: it may give that one more."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return str(error)
    return None


def is_name(value: object) -> bool:
    """Whether it can be shown in a line: no control characters, no half of a surrogate pair."""
    return isinstance(value, str) and 1 <= len(value) <= LONGEST_NAME and value.isprintable()


def is_whole(value: object, least: int = 0) -> bool:
    """Whether it is an integer of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_amount(value: object) -> bool:
    """Whether it is a positive number, of which a float can be made."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 < value < 2**62  # type: ignore[operator]


def whole(text: str) -> int:
    """A whole number as it is typed.

    Raises:
        ValueError: it is something else. So are digits of other scripts and `1_000`, which Python
            reads.
    """
    return int(_plain(text))


def number(text: str) -> float:
    """A number as it is typed.

    Raises:
        ValueError: as `whole` does.
    """
    return float(_plain(text))


def _plain(text: str) -> str:
    if not text.isascii() or "_" in text:
        raise ValueError(shown(text))
    return text


def is_texts(value: object) -> bool:
    """Whether it is a tuple or list of names."""
    return isinstance(value, (tuple, list)) and all(map(is_name, value))


def is_mapping_of(value: object, key: type, *, to: type = object) -> bool:
    """Whether it is a mapping of such keys to such values."""
    return isinstance(value, Mapping) and all(
        isinstance(k, key) and isinstance(v, to) for k, v in value.items()
    )


def require_some(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Raises `InvalidArgument` unless there is one, and each is known."""
    several = isinstance(given, (tuple, list)) and bool(given)
    if not several or any(one not in known for one in given):
        raise InvalidArgument(f"{what}={shown(given)}: give some of {', '.join(known)}")


def are_modules(value: object) -> bool:
    """Whether it is a tuple or list of names that an import statement takes."""
    return is_texts(value) and all(
        part.isidentifier()
        for name in value  # type: ignore[attr-defined]
        for part in name.split(".")
    )
