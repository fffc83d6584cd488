"""The leaves of a call: which inputs are one tensor, and what takes a gradient.

By the case alone, so that the reference and the ranks have the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto

from torch import Tensor

from tpcheck.case import Case


class Quiet(Enum):
    """How a call of a kernel asks for no gradient."""

    NO_GRAD = auto()  # what could give one is not to
    CONSTANTS = auto()  # nothing could
    INFERENCE = auto()  # nothing is to be kept for one


def quiet(case: Case) -> Quiet | None:
    """By the case's seed; None where gradients are asked for."""
    return None if case.gradients != "none" else [*Quiet][case.seed % len(Quiet)]


def takes_gradients(
    case: Case, given: Mapping[str, Tensor], constants: Collection[str]
) -> dict[str, Tensor]:
    """The leaves of a kernel's call: where gradients are not to be given, floats could give one,
    but for constants, which never do."""
    could = quiet(case) is Quiet.NO_GRAD
    return {
        name: leaf.requires_grad_(
            name not in constants and (leaf.requires_grad or (could and leaf.is_floating_point()))
        )
        for name, leaf in given.items()
    }


def sources(case: Case, inputs: Mapping[str, Tensor]) -> dict[str, str]:
    """Of each input the one whose tensor it is: in an "aliased" case the first float one of its
    shape, else itself."""
    found: dict[str, str] = {}
    first: dict[tuple[int, ...], str] = {}
    for name, tensor in inputs.items():
        shared = case.memory == "aliased" and tensor.is_floating_point()
        found[name] = first.setdefault(tuple(tensor.shape), name) if shared else name
    return found


def aliased(case: Case, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same inputs; those that are one tensor have the numbers of its first name."""
    return {name: inputs[source] for name, source in sources(case, inputs).items()}


def leaves(
    case: Case,
    inputs: Mapping[str, Tensor],
    make: Callable[[str, Tensor, bool], Tensor],
    here: Callable[[str], bool] = lambda name: True,
) -> dict[str, Tensor]:
    """A leaf of each input.

    Args:
        make: (name, full tensor, whether it takes a gradient) → the leaf.
        here: whether an input is on this rank.
    """
    source = sources(case, inputs)
    own = [name for name in inputs if source[name] == name]
    floats = [name for name in own if inputs[name].is_floating_point()]
    wanted = [] if case.mode == "constant" else asked(case, floats)
    made = {name: make(name, inputs[name], name in wanted) for name in own if here(name)}
    return {name: made[source[name]] for name in inputs if source[name] in made}


def asked(case: Case, names: Collection[str]) -> list[str]:
    """Of inputs those whose gradient is asked for, of outputs those that backward starts from: all,
    none, or, in a case of "some", about half of them, and never none or all of several."""
    if case.gradients == "none":
        return []
    if case.gradients == "all" or len(names) < 2:
        return list(names)
    drawn = {name: zlib.crc32(f"{case.seed} gradient {name}".encode()) for name in names}
    chosen = {name for name, number in drawn.items() if number % 2}
    first = min(drawn, key=drawn.__getitem__)
    if not chosen:
        chosen = {first}
    elif len(chosen) == len(drawn):
        chosen -= {first}
    return [name for name in names if name in chosen]
