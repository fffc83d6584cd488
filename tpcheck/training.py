"""Steps of an optimizer: what training asks beyond one backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpcheck.given import demand, demand_callables, is_amount, is_whole

if TYPE_CHECKING:
    import torch
    from torch import nn

    Optimizer = Callable[[Mapping[str, nn.Parameter]], Any]


#: What main parameters may be in.
MAIN = ("torch.float32", "torch.float64")


@dataclass(frozen=True)
class Scaling:
    """Dynamic loss scaling (Micikevicius et al., "Mixed Precision Training", 2018), as
    `torch.amp.GradScaler` has it: `Training(…, scaling=Scaling())`.

    Every backward begins from its cotangents times the scale. Gradients are divided by it before
    they are clipped. Where one of them is not finite, on whichever rank, no rank takes the step,
    nor does the schedule, and the scale is multiplied by `backoff`; after `interval` steps in a row
    that were taken, by `growth`. In most cases one element of one parameter's gradient, which a
    single rank may have, is made infinite in one of the steps.

    Args:
        initial: the scale of the first step.

    Raises:
        InvalidArgument: a member can't be.
    """

    initial: float = 2.0**8
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2

    def __post_init__(self) -> None:
        for name in ("initial", "growth", "backoff"):
            value = getattr(self, name)
            of_two = is_amount(value) and math.frexp(value)[0] == 0.5
            demand(self, name, of_two, "a power of two, by which every dtype multiplies exactly")
        demand(self, "growth", self.growth >= 1, "1 or more")
        demand(self, "backoff", self.backoff <= 1, "1 or less")
        demand(self, "interval", is_whole(self.interval, 1), "a whole number from 1 on")


@dataclass(frozen=True)
class Training:
    """Steps that a spec's cases take: `Spec(training=Training(adamw, steps=3))`.

    In each of them gradients are set to zero, every microbatch runs, on data that no other step
    has, gradients are made whole (`Spec(finalize=…)`) and clipped (`Spec(norm=…)`), and the
    optimizer takes its step. After it every parameter and every tensor of the optimizer's state is
    compared with the reference's, under bounds that the reference's own steps give: rounding errors
    of a step go on into those after it.

    Args:
        optimizer: name → parameter, tied ones once, → a `torch.optim.Optimizer` of them: `lambda
            named: torch.optim.AdamW(named.values(), lr=1e-3)`. It is the reference's, of full
            parameters, and that of each rank's, where the check does not bring its own
            (`Check(optimizer=…)`). That is right where it treats each element by itself, as SGD,
            Adam and their like do; Adafactor's does not.
        steps: how many, from 1 on.
        schedule: optimizer → a `torch.optim.lr_scheduler.LRScheduler`, which takes a step after
            each of the optimizer's; None: the rate stays.
        main: a dtype, `torch.float32`, say: in cases of dtypes that hold less, the optimizer is
            made of copies in this one (main parameters), which take the steps by gradients in it;
            the parameters are these, rounded. The copy of `w` is compared as `w.main`, the state
            that an optimizer keeps of it as that of `w`. None: it is made of the parameters.
        scaling: of the loss; the scale is compared as `loss_scale` after each step. None: none.

    Raises:
        InvalidArgument: a member can't be.
    """

    optimizer: Optimizer
    steps: int = 2
    schedule: Callable[[Any], Any] | None = None
    main: torch.dtype | None = None
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        demand_callables(self, "optimizer")
        demand_callables(self, "schedule", optional=True)
        demand(self, "steps", is_whole(self.steps, 1), "a whole number from 1 on")
        main = self.main is None or str(self.main) in MAIN
        demand(self, "main", main, f"one of {', '.join(MAIN)}, or None")
        scaling = self.scaling is None or isinstance(self.scaling, Scaling)
        demand(self, "scaling", scaling, "a Scaling, or None")
