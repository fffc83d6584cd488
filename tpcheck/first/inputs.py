"""What a module's forward takes: as it is told, or the first guess with which it runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tpcheck import given
from tpcheck.errors import InvalidArgument, let_through, listed
from tpcheck.first.factory import required
from tpcheck.first.room import require_room

#: Sizes while the module is read: what the degrees 2 and 4 divide, and no width is.
TRIED = {"batch": 12, "seq": 20}
#: What is no size: how many ranks there are.
DEGREES = ("dp", "tp")
#: Arguments that are token ids, whatever the module's first parameter is.
IDS = ("ids", "input_ids", "token_ids", "tokens", "idx", "indices")


@dataclass(frozen=True)
class Given:
    """One input.

    Args:
        name: as forward calls it.
        shape: sizes, and names of sizes that cases draw.
        below: of integers, the first number that is none; 0 of floats.
    """

    name: str
    shape: tuple[int | str, ...]
    below: int = 0

    def sizes(self) -> list[int]:
        return [TRIED.get(size, 4) if isinstance(size, str) else size for size in self.shape]

    def tensor(self, shape: Sequence[int] = ()) -> Tensor:
        """One of these sizes."""
        sizes = shape or self.sizes()
        return torch.zeros(*sizes, dtype=torch.long) if self.below else torch.rand(*sizes)

    def text(self) -> str:
        """How a spec draws it."""
        shape = [f'case["{size}"]' if isinstance(size, str) else str(size) for size in self.shape]
        if self.below:
            return f'draw.integers("{self.name}", {", ".join(["0", str(self.below), *shape])})'
        return f'draw("{self.name}", {", ".join(shape)})'


def of_forward(module: nn.Module, target: str, texts: Sequence[str]) -> tuple[Given, ...]:
    """What is told of its inputs, or else guessed.

    Raises:
        InvalidArgument: it can't be guessed, or forward takes it by keyword alone.
    """
    named = [p.name for p in required(module.forward) if p.kind is p.KEYWORD_ONLY]
    if named:
        raise InvalidArgument(
            f"the forward of {target} takes {named[0]} by keyword alone, and init writes checks "
            "that give inputs by position: write it by hand, with Spec(forward=lambda module, "
            "inputs: module(**inputs))"
        )
    return told(texts) or guessed(module, target)


def told(texts: Sequence[str]) -> tuple[Given, ...]:
    """`x=batch,8` of floats, `ids=batch,seq:100` of integers below 100."""
    found = tuple(map(_told, texts))
    names = [one.name for one in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidArgument(f"--input gives {twice} twice: give each input once")
    return found


def _told(text: str) -> Given:
    name, _, rest = text.partition("=")
    sizes, colon, below = rest.partition(":")
    try:
        shape = tuple(s if _is_name(s) else given.whole(s) for s in sizes.split(","))
        number = given.whole(below) if colon else 0
        sized = all(size not in DEGREES if isinstance(size, str) else size > 0 for size in shape)
        if not name.isidentifier() or not sized or (colon and number < 1):
            raise ValueError
    except ValueError:
        raise InvalidArgument(
            f"--input {text!r} is not NAME=SIZES, such as x=batch,8, or ids=batch,seq:100 of "
            "integers below 100; sizes are numbers, or names of what cases draw, without a _ in "
            f"front and other than {listed(DEGREES)}"
        ) from None
    told = Given(name, shape, number)
    require_room(f"--input {text!r}", math.prod(told.sizes()) * 8)
    return told


def _is_name(size: str) -> bool:
    """Whether it can be a dim of a case."""
    return size.isidentifier() and not size.startswith("_")


def guessed(module: nn.Module, target: str) -> tuple[Given, ...]:
    """The first inputs with which forward runs.

    Raises:
        InvalidArgument: with none of those that can be guessed.
    """
    names = [p.name for p in required(module.forward)] or ["x"]
    said = "it has no parameter to guess from"
    for shape, below in _guesses(module, names):
        tried = tuple(Given(name, shape, below) for name in names)
        try:
            with torch.no_grad():
                module(*(one.tensor() for one in tried))
        except BaseException as error:
            let_through(error)
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            continue
        return tried
    raise InvalidArgument(
        f"can't guess what the forward of {target} takes ({said}): say it, as in "
        + " ".join(f"--input {name}=batch,8" for name in names)
    )


def _guesses(
    module: nn.Module, names: Sequence[str]
) -> Iterator[tuple[tuple[int | str, ...], int]]:
    """Shapes, and of integers what they are below, the likeliest first."""
    shapes = [tuple(parameter.shape) for parameter in module.parameters()]
    first = next((m for m in module.modules() if any(True for _ in m.parameters(False))), None)
    embeds = isinstance(first, nn.Embedding) or "mbed" in type(first).__name__
    if shapes and (embeds or names[0] in IDS):
        yield ("batch", "seq"), shapes[0][0]
    matrices = [shape for shape in shapes if len(shape) > 1]
    widths = [s[0] for s in shapes[:1] if len(s) == 1]  # of a norm in front
    widths += [shape[-1] for shape in matrices] + [shape[0] for shape in matrices]
    widths += [shape[0] for shape in shapes if len(shape) == 1]
    for lead, width in itertools.product((("batch", "seq"), ("batch",), ()), dict.fromkeys(widths)):
        yield (*lead, width), 0
