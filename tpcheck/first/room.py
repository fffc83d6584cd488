"""How much memory a module may take that is to be checked: it is made under a ceiling, since one of
real size would take the machine's memory before anything is said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tpcheck.errors import InvalidArgument
from tpcheck.process.memory import available

#: How many times its bytes a check holds, about: four ranks each have it whole while it is sharded,
#: then in float64 with gradients, and the driver the reference, in the dtype of the case and in
#: float64, again and again. With less, a check is written that no machine of this size can run.
HELD = 32
#: Parameters from which a module is large: each rank builds it in each case, in float64, too, so
#: that one case takes seconds, and a check minutes.
LARGE = 10_000_000
#: Where nothing says how much memory there is.
UNKNOWN = 2**33


@contextlib.contextmanager
def within_reason(target: str) -> Iterator[None]:
    """What runs in it may make so many bytes of tensors as a check of them can hold.

    Raises:
        InvalidArgument: it makes more; no memory is taken for the one that is too much.
    """
    with _Ceiling(target, _most()):
        yield


def require_room(what: str, size: int) -> None:
    """Refuses an input of so many bytes.

    Raises:
        InvalidArgument: it is more than a check can hold.
    """
    if size > _most():
        raise InvalidArgument(
            f"{what} is more than {_most() / 10**9:.2g} GB, and each of its check's cases would "
            f"hold that some {HELD} times over: give smaller sizes"
        )


def _most() -> int:
    """Bytes of tensors, at most."""
    left = available()
    return (UNKNOWN if left is None else left) // HELD


def of_size(parameters: int) -> list[str]:
    """What is said of a module with so many, where they are many."""
    if parameters <= LARGE:
        return []
    return [f"it has {parameters:,} parameters, and every rank builds it in each case: use fewer"]


class _Ceiling(TorchDispatchMode):
    """Counts what is made of nothing, as parameters are: what is computed of other tensors goes."""

    def __init__(self, target: str, most: int) -> None:
        super().__init__()
        self.target, self.most, self.made = target, most, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if _makes(func) and not any(isinstance(one, torch.Tensor) for one in args):
            self._count(func, args, given)
        return func(*args, **given)

    def _count(self, func: Any, args: Any, given: dict[str, Any]) -> None:
        if torch.device(given.get("device") or "cpu").type == "meta":
            return
        planned = func(*args, **given | {"device": torch.device("meta")})
        if isinstance(planned, torch.Tensor):
            self.made += planned.numel() * planned.element_size()
        if self.made > self.most:
            raise InvalidArgument(
                f"{self.target} makes more than {self.most / 10**9:.2g} GB of tensors, and its "
                f"check would hold them some {HELD} times over: name a function that makes it with "
                "small sizes, or that returns a transformers configuration, which is made small"
            )


def _makes(func: Any) -> bool:
    """Whether an operator may make a tensor of nothing: it is told where to."""
    return any(argument.name == "device" for argument in func._schema.arguments)
