"""The optimizer of the reference's walk: the spec's, of the parameters or of copies of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.forms import check_form
from tpcheck.oracle.reference import ask
from tpcheck.protocol.optimizing import Mains, Optimizing, main_dtype, once
from tpcheck.protocol.scaling import Scaler
from tpcheck.spec import Spec
from tpcheck.tensors.draw import torch_dtype
from tpcheck.tensors.lists import in_lists, in_parts
from tpcheck.tensors.names import check_names


def optimizing_of(
    spec: Spec, case: Case, params: Mapping[str, nn.Parameter], dtype: torch.dtype
) -> Optimizing | None:
    """The spec's optimizer of these parameters, where it trains.

    Args:
        dtype: of the walk.
    """
    if (training := spec.training) is None:
        return None
    if not params:
        raise InvalidArgument(
            f"spec {spec.name!r}: training= takes steps by gradients of parameters, and "
            "the reference has none"
        )
    held = main_dtype(training.main, torch_dtype(case))
    # in the walk in float64, which stands for all dtypes, copies are in float64, too
    mains = None if held is None else Mains(params, torch.promote_types(held, dtype))
    given = once(params) if mains is None else mains.copies
    scaler = None if training.scaling is None else Scaler(training.scaling, once(params))
    own = ask(spec, "training's optimizer", training.optimizer, given)
    own = in_lists(in_parts(own))
    schedule = training.schedule
    if schedule is not None:
        schedule = partial(ask, spec, "training's schedule", schedule)
    return Optimizing(own, schedule, f"spec {spec.name!r}: training's optimizer", mains, scaler)


@torch.no_grad()
def end(optimizing: Optimizing) -> None:
    """Parameters are copies, rounded to their own dtype: in a walk in float64 by an operation of
    theirs, which rounds as that dtype does."""
    optimizing.end()
    for parameter in optimizing.mains.parameters.values() if optimizing.mains else ():
        parameter.mul_(1.0)


def state_of(
    spec: Spec, optimizing: Optimizing, params: Mapping[str, nn.Parameter]
) -> dict[str, Tensor]:
    """What the optimizer keeps, by the names under which it is compared.

    Raises:
        InvalidArgument: its state can't be read, or not be compared.
    """
    state: dict[str, Tensor] = ask(
        spec, "training's optimizer, its state,", optimizing.state, params
    )
    check_names("optimizer's state", state)
    for name, tensor in state.items():
        check_form(spec, "optimizer's state", name, tensor)
    return state
