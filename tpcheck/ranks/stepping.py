"""What comes after the last backward: gradients are made whole, read and clipped, and a step is
taken by them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from tpcheck.errors import InvalidArgument, shown
from tpcheck.protocol.conventions import sgd_step
from tpcheck.tensors.live import is_dtensor
from tpcheck.tensors.names import NORM, STEP, parameters_of
from tpcheck.vocabulary import Kind, Phase


def read_gradients(run: Any, module: Any) -> None:
    """Compares the gradients of all parameters; then, where the case has that, their norm, and what
    a step by them leaves.

    Args:
        run: the `RankRun`.
    """
    if not isinstance(module, nn.Module):
        return
    if finalize := run.parts.get("finalize"):
        with run.recorder:
            finalize(module, run.mesh)
    params, most = parameters_of(module), run.problem.most
    run.judge.parameter_gradients(params)
    if most is not None:
        _clip(run, module, most)
    if (run.case.step or most is not None) and params:
        _step(run, module, params)


def _clip(run: Any, module: nn.Module, most: float) -> None:
    """The candidate clips its gradients, and says what their norm was."""
    run.recorder.phase = Phase.STEP
    clip = run.parts.get("clip") or partial(_clipped, order=run.parts["norm"].order)
    with run.recorder:
        norm = clip(module, run.mesh, most)
    run.judge.check(Kind.GRAD_NORM, NORM, _as_norm(norm))


def _clipped(module: nn.Module, mesh: DeviceMesh, most: float, *, order: float) -> Tensor:
    """As `Check(clip=…)`, by torch's own function: of DTensors it is the norm over all ranks."""
    return torch.nn.utils.clip_grad_norm_(module.parameters(), most, order)


def _as_norm(given: Any) -> Tensor:
    """What `clip` returned, a number or a tensor of one element, as a plain tensor [].

    Raises:
        InvalidArgument: it is something else.
    """
    if isinstance(given, Tensor) and given.numel() == 1:
        whole = given.full_tensor() if is_dtensor(given) else given  # type: ignore[attr-defined]
        return whole.detach().reshape(())
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return torch.tensor(float(given), dtype=torch.float64)
    raise InvalidArgument(
        f"the check's clip returned {shown(given)}; return the norm of all gradients, a number or "
        "a tensor of one element"
    )


def _step(run: Any, module: Any, params: Mapping[str, nn.Parameter]) -> None:
    """A step of plain SGD, and one more forward under the parameters that it leaves."""
    run.recorder.phase = Phase.STEP
    sgd_step(params.values())
    for name, param in params.items():
        run.judge.check(Kind.PARAM, name, param.detach())
    with torch.no_grad():
        leaves = run.share.leaves(run.problem.inputs[0])
        with run.watching(module, STEP):
            outputs = run.forward(module, leaves)
        run.judge.outputs(outputs, STEP)
