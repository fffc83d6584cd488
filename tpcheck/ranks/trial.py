"""The spec's optimizer over numbers that are given to it, once in each step of training, so that
what it counts for itself goes on as in the candidate's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.protocol.optimizing import Optimizing
from tpcheck.tensors.lists import in_lists
from tpcheck.tensors.live import local
from tpcheck.training import Training

#: How far two steps of a part and of the whole may be apart, relative to the largest number, where
#: each element is stepped by itself: vectorized and not, they round differently.
APART = 1e-9
#: Sizes of gradients by which that is tried: a clipping of an optimizer's own may begin between.
SCALES = (1.0, 2.0**20, 2.0**-20)
#: By how much numbers of a state may be rounded, relative to themselves, in the spec's own dtypes.
ROUNDED = 2.0**-7

#: Name → tensor, float64 on the CPU
Numbers = dict[str, Tensor]
#: Name, full tensor → this rank's part of it
Part = Callable[[str, Tensor], Tensor]


@dataclass(frozen=True)
class Given:
    """What one parameter's step begins from.

    Args:
        number: what is stepped, the parameter or its main copy.
        gradient: None where there is none.
        state: key → tensor, as `Optimizing.state` names it; empty before the first step.
        u: the unit roundoff of the gradient.
    """

    number: Tensor
    gradient: Tensor | None
    state: Numbers
    u: float = 0.0


class Trial:
    """One optimizer of the spec's, with its schedule.

    Args:
        like: name → tensor of the size of what is stepped, and in the dtype of its steps.
        sign: 1 where gradients are larger by their unit roundoff, -1 where they are smaller.

    Raises:
        Exception: whatever the spec's optimizer does where it refuses parts of parameters.
    """

    def __init__(self, training: Training, like: Mapping[str, Tensor], sign: int = 0) -> None:
        self._named = {name: nn.Parameter(tensor.clone()) for name, tensor in like.items()}
        made = in_lists(training.optimizer(self._named))
        self._optimizing = Optimizing(made, training.schedule, "training's optimizer")
        self._sign = sign

    def step(self, given: Mapping[str, Given]) -> dict[str, Numbers]:
        """Name → what it leaves: the parameter under "", and the tensors of its state. Without
        those whose state is none of the spec's optimizer's.

        Raises:
            Exception: whatever the spec's optimizer does with such numbers.
        """
        told = []
        for name, parameter in self._named.items():
            of, dtype = given[name], parameter.dtype
            parameter.data, parameter.grad = of.number.to(dtype, copy=True), None
            if of.gradient is not None:
                parameter.grad = (of.gradient * (1 + self._sign * of.u)).to(dtype)
            if self._fill(name, of.state):
                told.append(name)
        self._optimizing.step()
        return {name: self._state(name) | {"": numbers(self._named[name])} for name in told}

    def count(self) -> None:
        """A step that somebody else has taken."""
        for parameter in self._named.values():
            parameter.grad = torch.zeros_like(parameter)
        self._optimizing.step()

    def _fill(self, name: str, state: Numbers) -> bool:
        """Its own state, of its own structure and dtypes, with the numbers of another's."""
        own, parameter = self._optimizing.optimizer.state, self._named[name]
        if not state:
            own.pop(parameter, None)
        elif parameter in own:
            own[parameter] = _filled(own[parameter], "", state)
        return _same(self._state(name), state, parameter.dtype)

    def _state(self, name: str) -> Numbers:
        kept = self._optimizing.state({name: self._named[name]})
        return {key.removeprefix(f"{name}."): numbers(tensor) for key, tensor in kept.items()}


class Later:
    """Trials that take a step where somebody asks what it leaves: the steps that nobody asked for
    are counted first.

    Args:
        trials: of which no other takes steps.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = trials
        self._given: Mapping[str, Given] | None = None
        self._left: list[dict[str, Numbers]] | None = None
        self._missed = 0

    def begin(self, given: Mapping[str, Given] | None) -> None:
        """A step is next; None: somebody else has taken it."""
        self._missed += self._given is not None and self._left is None
        self._missed += given is None
        self._given, self._left = given, None

    def left(self) -> list[dict[str, Numbers]]:
        """What each leaves of the step that has begun, as `Trial.step` says it.

        Raises:
            Exception: whatever the spec's optimizer does with such numbers.
        """
        assert self._given is not None, "a step has begun"
        if self._left is None:
            for trial in self._trials:
                for _ in range(self._missed):
                    trial.count()
            self._missed = 0
            self._left = [trial.step(self._given) for trial in self._trials]
        return self._left


def _same(own: Numbers, given: Numbers, dtype: torch.dtype) -> bool:
    """Whether one is the other, rounded at most: below the normal range to a multiple of the
    smallest number."""
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    return own.keys() == given.keys() and all(
        torch.equal(own[key], given[key])
        or torch.allclose(own[key], given[key], rtol=ROUNDED, atol=least)
        for key in own
    )


def _filled(value: Any, path: str, state: Numbers) -> Any:
    if isinstance(value, Tensor):
        return state[path].to(value.dtype, copy=True) if path in state else value
    if isinstance(value, (bool, int, float)):
        return type(value)(state[path].item()) if path in state else value
    inside = f"{path}." if path else ""
    if isinstance(value, Mapping):
        return {key: _filled(one, f"{inside}{key}", state) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        filled = [_filled(one, f"{inside}{index}", state) for index, one in enumerate(value)]
        return filled if isinstance(value, list) else tuple(filled)
    return value


def steps_each_element_by_itself(training: Training, wholes: Numbers, parts: Part) -> bool:
    """Whether the spec's optimizer makes of a part the part of what it makes of the whole, whatever
    the gradients of other parameters are.

    Args:
        wholes: name → parameter.
        parts: of this rank.

    Raises:
        Exception: whatever it does with such numbers.
    """
    own = {name: parts(name, whole) for name, whole in wholes.items()}
    tried = [(_waves, scale) for scale in SCALES] + [(_slopes, 1.0)]
    for kind, scale in tried:
        drawn = {name: kind(whole) * scale for name, whole in wholes.items()}
        due = Trial(training, wholes).step({n: Given(wholes[n], drawn[n], {}) for n in wholes})
        for turn in (0, 1):
            given = {
                name: Given(part, parts(name, drawn[name]) * (place % 2 == turn), {})
                for place, (name, part) in enumerate(own.items())
            }
            left = Trial(training, own).step(given)
            for name in list(own)[turn::2]:
                whole = {k: v for k, v in due[name].items() if v.shape == wholes[name].shape}
                if not all(
                    path in left[name] and _alike(left[name][path], parts(name, value))
                    for path, value in whole.items()
                ):
                    return False
    return True


def numbers(tensor: Tensor) -> Tensor:
    """A copy of what this rank has of it."""
    return local(tensor).detach().to("cpu", torch.float64, copy=True)


def largest(error: Tensor) -> float:
    """Of its elements; 0 where it has none."""
    return float(error.abs().max()) if error.numel() else 0.0


def _waves(like: Tensor) -> Tensor:
    """Gradients of both signs, no two alike."""
    return torch.arange(1, like.numel() + 1, dtype=torch.float64).sin().reshape(like.shape)


def _slopes(like: Tensor) -> Tensor:
    """Gradients of both signs that grow along each dim, so that a part along any has another mean
    than the whole, and numbers lie between the two."""
    slopes = torch.full(like.shape, -like.ndim / 4, dtype=torch.float64)
    for dim, size in enumerate(like.shape):
        along = torch.arange(size, dtype=torch.float64) / max(size, 1)
        slopes += along.reshape(-1, *[1] * (like.ndim - 1 - dim))
    return slopes


def _alike(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    return largest(one - other) <= APART * largest(other)
