"""What a kernel is given: `tpcheck.Argument`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpcheck.case import Case
from tpcheck.errors import InvalidArgument, listed, shown
from tpcheck.given import demand, is_name, is_whole
from tpcheck.process import memory

if TYPE_CHECKING:
    from torch import Tensor

Size = str | int
#: What a tensor of integers may be → the method that casts it.
INTEGERS = {"bool": "bool", "int8": "char", "uint8": "byte", "int16": "short", "int32": "int"}
INTEGERS |= {"int64": "long"}
#: → the least and the largest number that it holds.
HELD = {"bool": (0, 1), "uint8": (0, 2**8 - 1)}
HELD |= {f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}


#: So many tensors of float64 of its size, at least, has a case of an argument: its numbers, its
#: gradient, and an output with its own upstream gradient.
COPIES = 4
#: Bytes that there are: of fewer it is not asked how many are left, which takes as long as to draw
#: a small argument does.
SMALL = 2**26


@dataclass(frozen=True, init=False)
class Argument:
    """A tensor that a kernel is given.

    Args:
        shape: of each dim its size, or the name of a size that cases draw.
        integers: (low, high) of an integer tensor: low included, high not; each a number, negative
            ones too, or the name of a size. A float one by default, which takes a gradient.
        dtype: of an integer tensor, by default "int64"; or "bool", a mask, which needs no
            `integers`. A float one has the case's.
        gradient: False of a float one that takes none: the reference's is not asked for.
    """

    shape: tuple[Size, ...]
    integers: tuple[Size, Size] | None = None
    dtype: str = ""
    gradient: bool = True

    def __init__(
        self,
        *shape: Size,
        integers: tuple[Size, Size] | None = None,
        dtype: str = "",
        gradient: bool = True,
    ) -> None:
        if dtype == "bool" and integers is None:
            integers = (0, 2)
        given = {"shape": shape, "integers": integers, "dtype": dtype, "gradient": gradient}
        for name, value in given.items():
            object.__setattr__(self, name, value)
        ends = isinstance(integers, tuple) and len(integers) == 2 and all(map(_is_end, integers))
        demand(self, "shape", all(map(_is_size, shape)), "sizes, or names of sizes in a word")
        demand(
            self, "integers", integers is None or ends, "two numbers, or names of sizes in a word"
        )
        numbers = ends and all(isinstance(end, int) for end in integers or ())
        some = not numbers or integers[0] < integers[1]  # type: ignore[index,operator]
        demand(self, "integers", some, "the least one, and one that is larger than the largest")
        known = dtype == "" or (str(dtype) in INTEGERS and integers is not None)
        known &= isinstance(dtype, str)
        demand(self, "dtype", known, f"one of {', '.join(INTEGERS)}, of a tensor of integers")
        demand(self, "gradient", isinstance(gradient, bool), "True or False")

    @property
    def names(self) -> set[str]:
        """Of the sizes that it needs."""
        return {size for size in (*self.shape, *(self.integers or ())) if isinstance(size, str)}

    def draw(self, name: str, case: Case, draw: Any) -> Tensor:
        """Its numbers in a case."""
        shape = [_of(case, size) for size in self.shape]
        _require_room(name, shape)
        if self.integers is None:
            return draw(name, *shape)
        low, high = (end if isinstance(end, int) else _of(case, end) for end in self.integers)
        self._require_held(name, low, high)
        drawn: Tensor = draw.integers(name, low, high, *shape)
        return getattr(drawn, INTEGERS[self.dtype])() if self.dtype else drawn

    def _require_held(self, name: str, low: int, high: int) -> None:
        """That the dtype holds each of the numbers."""
        least, most = HELD[self.dtype or "int64"]
        if low < high and not (least <= low and high - 1 <= most):
            raise InvalidArgument(
                f"argument {name!r}: integers from {low} to {high - 1} are asked of {self.dtype}, "
                f"which holds {least} to {most}: give others, or another dtype"
            )


def require_taken(
    arguments: Iterable[str], options: Iterable[str], **functions: Callable[..., Any] | None
) -> None:
    """That each function, where Python knows what it takes, takes the tensors by position and the
    options by keyword, and has none of the tensors' names at another position."""
    names, words = list(arguments), dict.fromkeys(options)
    for what, function in functions.items():
        if function is None:
            continue
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # of a function of torch's own, say
            continue
        given = f"kernel_check({what}=…) is given {listed(names) or 'no tensor'} by position"
        try:
            signature.bind(*names, **words)
        except TypeError as error:
            more = f", and {listed(list(words))} by keyword" if words else ""
            raise InvalidArgument(f"{given}{more}, and takes {signature}: {error}") from None
        own = [name for name, one in signature.parameters.items() if one.kind in _BY_POSITION]
        if any(name in own and own.index(name) != at for at, name in enumerate(names)):
            raise InvalidArgument(
                f"{given}, as `arguments` has them, and takes {signature}: give `arguments` in its "
                "order"
            )


def can_be_drawn(how: object) -> bool:
    """Whether it is what a dim may be drawn from. A strategy is told by what all of them have."""
    if isinstance(how, list):
        return bool(how) and all(isinstance(one, (int, float, str)) for one in how)
    if callable(how) and not hasattr(how, "flatmap"):
        return _takes(how, {})
    return isinstance(how, (int, float, str)) or hasattr(how, "flatmap")


def _takes(function: Callable[..., Any], *given: object) -> bool:
    """Whether it can be called with these, as far as Python knows what it takes."""
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        return False
    except ValueError:  # of a function of torch's own, say
        return True
    return True


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _is_size(size: object) -> bool:
    return _is_end(size) and not (isinstance(size, int) and size < 0)


def _is_end(end: object) -> bool:
    """Of a range of integers. Names stand in the line of a case, as `rows=3`."""
    if isinstance(end, str):
        return is_name(end) and end.split() == [end] and "=" not in end
    return isinstance(end, int) and not isinstance(end, bool)


def _require_room(name: str, shape: list[int]) -> None:
    """That it fits into what memory there is: the system would end the process."""
    if (needed := COPIES * 8 * math.prod(shape)) < SMALL:
        return
    left = memory.available()
    if left is not None and needed > left:
        raise InvalidArgument(
            f"argument {name!r} is {' × '.join(map(str, shape))}: a case takes {needed / 1e9:.1f} "
            f"GB of memory for it, and {left / 1e9:.1f} GB are left: give smaller sizes"
        )


def _of(case: Case, size: Size) -> int:
    found = case[size] if isinstance(size, str) else size
    if not is_whole(found):
        raise InvalidArgument(f"size {size!r} is {shown(found)}: give whole numbers, 0 or more")
    return int(found)
