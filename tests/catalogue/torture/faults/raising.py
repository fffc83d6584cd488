"""What candidates raise."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tests.catalogue.torture.fault import ON_THE_WAY, Effect, Here, Place, kind
from tpcheck import errors

_ORDINARY = sorted(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, Exception) and "Unicode" not in name
    if "Group" not in name
)


@kind(Effect.RAISES, *_ORDINARY)
def an_exception_of_python(here: Here) -> None:
    """Raises one of Python's own exceptions."""
    raise getattr(builtins, here.variant)("deliberate")


@kind(Effect.RAISES, SystemExit, KeyboardInterrupt, GeneratorExit, BaseException)
def what_is_not_an_exception(here: Here) -> None:
    """Raises one of Python's that `except Exception` does not catch."""
    raise here.variant


@kind(Effect.RAISES, 0, None, "text", 3, ["list"])
def exits(here: Here) -> None:
    """Raises SystemExit with a code of some sort."""
    raise SystemExit(here.variant)


@kind(
    Effect.RAISES,
    errors.InvalidArgument,
    errors.EngineUnavailable,
    errors.Untrusted,
    errors.CollectiveMismatch,
)
def an_exception_of_tpcheck(here: Here) -> None:
    """Raises one that tpcheck itself raises."""
    raise here.variant("deliberate")


@kind(Effect.RAISES, "DistError", "DistBackendError", "DistNetworkError", "DistStoreError")
def an_exception_of_collectives(here: Here) -> None:
    """Raises what a collective raises."""
    raise getattr(dist, here.variant)("deliberate")


@kind(Effect.RAISES, "OutOfMemoryError", "check", "inplace", "twice")
def an_exception_of_torch(here: Here) -> None:
    """Has torch raise."""
    x = torch.ones(2, requires_grad=True)
    if here.variant == "OutOfMemoryError":
        raise torch.OutOfMemoryError("deliberate")
    with torch.enable_grad():
        if here.variant == "inplace":
            x.add_(1)
        y = (x * x).sum()
        y.backward()
        y.backward()
    torch.ones(2) @ torch.ones(3)


class _NoText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class _TextIsNone(Exception):
    def __str__(self) -> str:
        return None


class _NoPickle(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("no pickle")


class _NeedsMore(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first}{second}")


class _HoldsALambda(Exception):
    def __init__(self) -> None:
        super().__init__("held")
        self.held: Callable[[], int] = lambda: 1


class _NoAttributes(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise AttributeError(name)


class _TextExits(Exception):
    def __str__(self) -> str:
        raise SystemExit(0)


class _Meta(type):
    @property
    def __name__(cls) -> str:
        raise RuntimeError("no name")


class _NoName(Exception, metaclass=_Meta):
    pass


@kind(Effect.RAISES, _NoText, _TextIsNone, _TextExits)
def one_without_a_text(here: Here) -> None:
    """Its `__str__` and `__repr__` raise, or give no text."""
    raise here.variant


@kind(Effect.RAISES, _NoPickle, _HoldsALambda)
def one_that_can_not_be_pickled(here: Here) -> None:
    """Its `__reduce__` raises, or it holds a lambda."""
    raise here.variant


@kind(Effect.RAISES)
def one_that_can_not_be_unpickled(here: Here) -> None:
    """Its constructor needs more than it hands on."""
    raise _NeedsMore(1, 2)


@kind(Effect.RAISES, at=ON_THE_WAY)
def one_without_attributes(here: Here) -> None:
    """Its `__getattribute__` raises."""
    raise _NoAttributes


@kind(Effect.RAISES, at=ON_THE_WAY)
def one_whose_class_has_no_name(here: Here) -> None:
    """The name of its class raises when it is read."""
    raise _NoName


_TEXTS = {
    "huge": "x" * 10_000_000,
    "lines": "line\n" * 200_000,
    "surrogates": "lone \ud800 surrogate",
    "control": "\x00\x07\x1b[31mred\x1b[0m\x9b",
    "markup": "[/some/x] [bold]batch, seq[/] ]]>",
    "empty": "",
    "bidi": "\u202eright to left\u2066",
}


@kind(Effect.RAISES, *_TEXTS)
def one_with_an_odd_text(here: Here) -> None:
    """Its text is huge, empty, markup, control characters, or no valid Unicode."""
    raise ValueError(_TEXTS[here.variant])


@kind(Effect.RAISES)
def one_whose_class_has_an_odd_name(here: Here) -> None:
    """Its class is called like markup."""
    raise type("[/x]\x1b[2J\ud800", (Exception,), {})("deliberate")


@kind(Effect.RAISES, 1, 500)
def a_group_of_exceptions(here: Here) -> None:
    """Raises an `ExceptionGroup`, nested."""
    group: Exception = ValueError("inner")
    for _ in range(here.variant):
        group = ExceptionGroup("outer", [group])
    raise group


@kind(Effect.RAISES)
def one_that_causes_itself(here: Here) -> None:
    """Its causes are a circle."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    first.__context__, second.__context__ = second, first
    raise first


@kind(Effect.RAISES)
def a_long_chain(here: Here) -> None:
    """Has five thousand causes, one behind the other."""
    error: Exception | None = None
    for _ in range(5000):
        new = ValueError("next")
        new.__cause__ = error
        error = new
    assert error is not None
    raise error


@kind(Effect.RAISES)
def a_deep_stack(here: Here) -> None:
    """Raises nine hundred frames down."""

    def down(depth: int) -> None:
        if not depth:
            raise ValueError("deep")
        down(depth - 1)

    down(900)


@kind(Effect.RAISES)
def a_warning(here: Here) -> None:
    """Makes warnings errors, and warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.warn("deliberate", stacklevel=1)


@kind(Effect.RAISES)
def no_exception_at_all(here: Here) -> None:
    """Raises something that is not an exception."""
    one: object = 3
    raise one


@kind(Effect.RAISES)
def while_it_cleans_up(here: Here) -> None:
    """Raises in the `finally` of what it raised."""
    try:
        raise ValueError("first")
    finally:
        raise TypeError("second")


@kind(Effect.RAISES)
def from_code_without_a_file(here: Here) -> None:
    """Raises in code whose file is not there, or has an odd name."""
    exec(compile("raise ValueError('deliberate')", "\x1b[31m/no/such/[file].py\ud800", "exec"))


@kind(Effect.RAISES, at=(Place.FORWARD, Place.FINALIZE))
def a_generator_of_exceptions(here: Here) -> None:
    """Raises out of a generator that swallows its own end."""

    def endless() -> Any:
        try:
            yield
        except GeneratorExit:
            raise RuntimeError("not yet") from None

    one = endless()
    next(one)
    one.close()
