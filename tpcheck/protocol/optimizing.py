"""An optimizer as the reference's walk and a rank's both use it: its steps, its state by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.errors import InvalidArgument, shown

#: What is asked of an optimizer, whoever wrote it.
METHODS = ("step", "zero_grad")


class Optimizing:
    """The steps that an optimizer takes, and those of its schedule.

    Args:
        optimizer: torch's, or one with the same methods and `state`.
        schedule: of its rates; None where they stay.
        whose: made it, for messages.

    Raises:
        InvalidArgument: it is not one.
    """

    def __init__(self, optimizer: Any, schedule: Any, whose: str) -> None:
        absent = [name for name in METHODS if not callable(getattr(optimizer, name, None))]
        if absent or not isinstance(getattr(optimizer, "state", None), Mapping):
            raise InvalidArgument(
                f"{whose} returned {shown(optimizer)}; return a torch.optim.Optimizer, or an "
                "object with its step(), zero_grad() and state"
            )
        self.optimizer = optimizer
        self.schedule = schedule(optimizer) if schedule else None

    def zero(self) -> None:
        """Before the passes of a step."""
        self.optimizer.zero_grad()

    def step(self) -> None:
        """After the last of them."""
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()

    def state(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
        """`NAME.KEY` → what it keeps of a parameter, tied ones under their first name: a tensor, or
        a number as one."""
        found: dict[str, Tensor | None] = {}
        for name, parameter in once(parameters).items():
            kept = self.optimizer.state.get(parameter, {})
            found |= {f"{name}.{key}": _tensor(value) for key, value in kept.items()}
        return {name: tensor for name, tensor in found.items() if tensor is not None}


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


def _tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return torch.tensor(float(value), dtype=torch.float64)
    return None
