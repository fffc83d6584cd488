"""Instances of a dataclass with the smallest and the oddest fields that its types allow."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

PLAIN: dict[type, list[Any]] = {
    str: ["", "a\n\x1b[31m[/b]\x00\udcff\u202e"],
    int: [0, -(2**70)],
    float: [0.0, math.nan, -math.inf],
    bool: [False, True],
    type(None): [None],
}


def values(kind: Any) -> list[Any]:
    """A few values of an annotation: the smallest first, the oddest last."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return [value for one in arguments for value in values(one)]
    if origin is Literal:
        return list(arguments)
    if origin is tuple and arguments[-1] is ...:
        inner = values(arguments[0])
        return [(), (inner[-1],), tuple(inner)]
    if origin is tuple:
        parts = [values(one) for one in arguments]
        return [tuple(part[0] for part in parts), tuple(part[-1] for part in parts)]
    if origin in (list, set, frozenset):
        inner = values(arguments[0])
        return [origin(), origin(inner[-1:])]
    if origin is not None and issubclass(origin, Mapping):
        keys, inner = values(arguments[0]), values(arguments[1])
        return [{}, {keys[-1]: inner[-1]}, {keys[0]: inner[0]}]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)
    if dataclasses.is_dataclass(kind):
        return list(ends(kind))
    raise AssertionError(f"no values of {kind}")


def ends(kind: Any) -> Iterator[Any]:
    """The instance of all first values, and that of all last ones."""
    hints = get_type_hints(kind)
    fields = [f.name for f in dataclasses.fields(kind)]
    for at in (0, -1):
        yield kind(**{name: values(hints[name])[at] for name in fields})


def instances(kind: Any) -> Iterator[Any]:
    """Both ends, each with one field at a time at each of its values."""
    hints = get_type_hints(kind)
    for end in ends(kind):
        yield end
        for field in dataclasses.fields(kind):
            for value in values(hints[field.name]):
                yield dataclasses.replace(end, **{field.name: value})


def members(union: Any) -> Iterator[Any]:
    """The classes of a closed union, and of those in it."""
    for one in get_args(union):
        if get_origin(one) in (Union, types.UnionType):
            yield from members(one)
        else:
            yield one
