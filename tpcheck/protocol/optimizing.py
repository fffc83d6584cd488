"""An optimizer as the reference's walk and a rank's both use it: its steps, its state by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.errors import InvalidArgument, shown
from tpcheck.protocol.scaling import SCALE, Scaler

#: Of a parameter's state: its copy in a dtype that holds more.
MAIN = "main"
#: What is asked of an optimizer, whoever wrote it.
METHODS = ("step", "zero_grad")


def main_dtype(main: torch.dtype | None, dtype: torch.dtype) -> torch.dtype | None:
    """What main parameters are in beside parameters of `dtype`; None where there are none."""
    if main is None or torch.finfo(main).eps >= torch.finfo(dtype).eps:
        return None
    return main


class Mains:
    """Copies of parameters that take an optimizer's steps in their place.

    Args:
        parameters: whose copies; tied ones once.
        dtype: of the copies.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], dtype: torch.dtype) -> None:
        self.parameters = once(parameters)
        self.copies = {
            name: nn.Parameter(p.detach().to(dtype, copy=True))
            for name, p in self.parameters.items()
        }

    def take_gradients(self) -> None:
        """Each copy has its parameter's gradient, in its own dtype."""
        for name, copy in self.copies.items():
            own = self.parameters[name].grad
            copy.grad = None if own is None else own.to(copy.dtype)

    @torch.no_grad()
    def give_back(self) -> None:
        """Each parameter is its copy, in its own dtype."""
        for name, copy in self.copies.items():
            self.parameters[name].copy_(copy)


class Optimizing:
    """The steps that an optimizer takes, and those of its schedule.

    Args:
        optimizer: torch's, or one with the same methods and `state`.
        schedule: of its rates; None where they stay.
        whose: made it, for messages.
        mains: what it was made of, where that is not the parameters.
        scaler: scales the loss, where it does not itself.
        scales: whether the loss is scaled.

    Raises:
        InvalidArgument: it is not one.
    """

    def __init__(
        self,
        optimizer: Any,
        schedule: Any,
        whose: str,
        mains: Mains | None = None,
        scaler: Scaler | None = None,
        *,
        scales: bool = False,
    ) -> None:
        methods = (name for name in METHODS if not callable(getattr(optimizer, name, None)))
        absent = [f"{name}()" for name in methods]
        if not isinstance(getattr(optimizer, "state", None), Mapping):
            absent.append("state")
        if absent:
            raise InvalidArgument(
                f"{whose} returned {shown(optimizer)}, which has no {', no '.join(absent)}; return "
                "a torch.optim.Optimizer, or an object with step(), zero_grad() and state, a dict: "
                "parameter → name → tensor"
            )
        own = scales and scaler is None
        if own and (not callable(getattr(optimizer, "unscale", None)) or _scale(optimizer) is None):
            raise InvalidArgument(
                f"{whose} returned {shown(optimizer)}, which scales no loss; return an object with "
                "its scale, a number, and its unscale(), too"
            )
        self.optimizer, self.whose, self.mains = optimizer, whose, mains
        self.scaler, self._scales_itself = scaler, own
        self.schedule = schedule(optimizer) if schedule else None
        if schedule and not callable(getattr(self.schedule, "step", None)):
            raise InvalidArgument(
                f"{whose}: its schedule returned {shown(self.schedule)}; return a "
                "torch.optim.lr_scheduler.LRScheduler"
            )

    def zero(self, idle: Iterable[nn.Parameter] = ()) -> None:
        """Before the passes of a step; `idle`: parameters that it does not have."""
        self.optimizer.zero_grad()
        for parameter in (*idle, *(self.mains.parameters.values() if self.mains else ())):
            parameter.grad = None

    def idle(self, parameters: Mapping[str, nn.Parameter]) -> frozenset[str]:
        """Names of those that one of torch's optimizers does not have: its `zero_grad` leaves their
        gradients alone. None where copies take the steps: there all gradients go."""
        if self.mains is not None or not isinstance(self.optimizer, torch.optim.Optimizer):
            return frozenset()
        own = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        return frozenset(name for name, p in parameters.items() if id(p) not in own)

    @property
    def scale(self) -> float:
        """What a backward's cotangents are to be multiplied by."""
        if self._scales_itself:
            return _scale(self.optimizer) or 1.0
        return 1.0 if self.scaler is None else self.scaler.scale

    def unscale(self) -> None:
        """Before gradients are clipped: they are divided by the scale."""
        if self._scales_itself:
            self.optimizer.unscale()
        elif self.scaler is not None:
            self.scaler.unscale()

    def step(self) -> None:
        """After the last of them. What takes it may be copies: `end` gives them back."""
        if self.scaler is not None:
            self.scaler.update()
            if not self.scaler.finite:
                return
        if self.mains is not None:
            self.mains.take_gradients()
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()

    def end(self) -> None:
        """After the step: parameters are what it leaves."""
        if self.mains is not None:
            self.mains.give_back()

    def state(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
        """`NAME.KEY` → what it keeps of a parameter, tied ones under their first name: a tensor, or
        a number as one; of mappings and lists inside each, as in `NAME.KEY.0`.

        Raises:
            InvalidArgument: it keeps something else than a mapping of a parameter, or two tensors
                under one name.
        """
        found: dict[str, Tensor] = {}
        for name, parameter in once(parameters).items():
            copy = None if self.mains is None else self.mains.copies[name]
            if copy is not None:
                found[f"{name}.{MAIN}"] = copy.detach()
            kept = _states(self.optimizer).get(parameter if copy is None else copy, {})
            if not isinstance(kept, Mapping):
                raise InvalidArgument(
                    f"{self.whose}: its state of a parameter is {shown(kept)}; keep a mapping of "
                    "names to tensors"
                )
            for path, tensor in _tensors(name, kept):
                if path in found:
                    raise InvalidArgument(
                        f"{self.whose}: its state has two tensors that are both called {path!r}"
                    )
                found[path] = tensor
        if self._scales_itself or self.scaler is not None:
            found[SCALE] = torch.tensor(self.scale, dtype=torch.float64)
        return found


def _states(optimizer: Any) -> Mapping[Any, Any]:
    """Parameter → its state; of torch's ZeRO-1 that of the parameters that this rank steps."""
    module = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    if module is not None and isinstance(optimizer, module.ZeroRedundancyOptimizer):
        optimizer = optimizer.optim
    states: Mapping[Any, Any] = optimizer.state
    return states


def _scale(optimizer: Any) -> float | None:
    """The scale of a loss that an optimizer has; None where it has none."""
    scale = getattr(optimizer, "scale", None)
    if isinstance(scale, Tensor) and scale.numel() == 1:
        return float(scale)
    return float(scale) if isinstance(scale, (int, float)) else None


def once(parameters: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """Those that are trained, tied ones under the first of their names."""
    named: dict[nn.Parameter, str] = {}
    for name, parameter in parameters.items():
        if parameter.requires_grad:
            named.setdefault(parameter, name)
    return {name: parameter for parameter, name in named.items()}


def parameter_of(name: str, parameters: Mapping[str, Any]) -> str | None:
    """The parameter whose state is called `NAME.KEY`."""
    return next((own for own in parameters if name.startswith(f"{own}.")), None)


def _number(value: Any) -> Tensor | None:
    """A number, or what numpy holds, as a tensor: a count in float64, as long as that has it."""
    if isinstance(value, (int, float)) and not (isinstance(value, int) and abs(value) >= 2**53):
        return torch.tensor(float(value), dtype=torch.float64)
    if isinstance(value, (int, complex)):
        return torch.tensor(value)
    if type(value).__module__ == "numpy" and hasattr(value, "__array__"):
        return torch.as_tensor(value)
    return None


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors in a value, by the path to each."""
    if isinstance(value, Tensor):
        yield name, value.detach()
    elif (number := _number(value)) is not None:
        yield name, number
    elif isinstance(value, Mapping):
        for key, inside in value.items():
            yield from _tensors(f"{name}.{key}", inside)
    elif isinstance(value, (list, tuple)):
        for index, inside in enumerate(value):
            yield from _tensors(f"{name}.{index}", inside)
