"""What a value read from a file must look like: a report may come from anyone.

A shape is a class (`str`, `bool`, `int`), `NUMBER`, `ANYTHING`, `[shape]` for a list, `Each(shape)`
for an object of any keys, `Maybe(shape)` for what may be null, or a mapping of a field's name to
its shape. A field whose name ends with `?` may be missing or null, and is None then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpcheck.errors import InvalidArgument, shown

#: A number as reports write it: the strings `nan`, `inf` and `-inf` too.
NUMBER = object()

#: Shown as JSON, whatever it is.
ANYTHING = object()

_NON_FINITE = ("nan", "inf", "-inf")
_NAMES: dict[Any, str] = {str: "a text", bool: "true or false", int: "a whole number"}


@dataclass(frozen=True)
class Each:
    """An object whose values have one shape, whatever its keys."""

    shape: Any


@dataclass(frozen=True)
class Maybe:
    """That shape, or null."""

    shape: Any


def fitted(value: Any, shape: Any, at: str) -> Any:
    """The value, with the fields that its shape names and no others.

    Args:
        at: what it is called in an error, as in `checks[2].counterexample`.

    Raises:
        InvalidArgument: it has another shape.
    """
    if shape is ANYTHING:
        return value
    if shape is NUMBER:
        return _number(value, at)
    if isinstance(shape, Maybe):
        return None if value is None else fitted(value, shape.shape, at)
    if isinstance(shape, Each):
        given = _of(dict, value, at, "an object")
        return {key: fitted(one, shape.shape, f"{at}.{key}") for key, one in given.items()}
    if isinstance(shape, list):
        given = _of(list, value, at, "a list")
        return [fitted(one, shape[0], f"{at}[{i}]") for i, one in enumerate(given)]
    if isinstance(shape, Mapping):
        return _fields(_of(dict, value, at, "an object"), shape, at)
    if isinstance(value, bool) and shape is not bool:
        raise InvalidArgument(f"{at} is {shown(value)}, not {_NAMES[shape]}")
    return _of(shape, value, at, _NAMES[shape])


def _fields(given: Mapping[str, Any], shape: Mapping[str, Any], at: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, own in shape.items():
        name = field.removesuffix("?")
        if given.get(name) is not None:
            found[name] = fitted(given[name], own, f"{at}.{name}" if at else name)
        elif field.endswith("?"):
            found[name] = None
        else:
            raise InvalidArgument(f"{at or 'the report'} has no {shown(name)}")
    return found


def _number(value: Any, at: str) -> Any:
    if isinstance(value, bool) or not (isinstance(value, (int, float)) or value in _NON_FINITE):
        raise InvalidArgument(f"{at} is {shown(value)}, not a number")
    return value


def _of(kind: type, value: Any, at: str, name: str) -> Any:
    if not isinstance(value, kind):
        raise InvalidArgument(f"{at or 'the report'} is {shown(value)}, not {name}")
    return value
