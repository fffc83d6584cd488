"""A checkpoint of training: ranks take its first step and save, and others go on from there."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.protocol.optimizing import Optimizing
from tpcheck.tensors.live import local
from tpcheck.tensors.names import InPass, Pass, parameters_of, tensors_of
from tpcheck.vocabulary import Kind, Phase

#: The step after which they do.
SAVED = Pass(0, 0)


def resumes(run: Any) -> bool:
    """Whether the rank goes on with what others have saved.

    Args:
        run: the `RankRun`.
    """
    return bool(run.parts.get("resumes")) and not run.work.saving


def save(run: Any, module: nn.Module, optimizing: Optimizing) -> None:
    """Has the candidate write a checkpoint of its module and its optimizer."""
    run.recorder.phase = Phase.SAVE
    with run.recorder:
        run.parts["save"](module, optimizing.optimizer, Path(run.work.checkpoint))


@torch.no_grad()
def poison(run: Any, module: nn.Module) -> None:
    """What a loader leaves as it is shows: it is NaN."""
    for name, tensor in tensors_of(module).items():
        if name not in run.work.computed and tensor.is_floating_point():
            local(tensor).fill_(torch.nan)


def resume(run: Any, module: nn.Module, optimizing: Optimizing) -> dict[str, Tensor]:
    """Has the candidate load, and compares what it leaves with what the first step does; returns
    the optimizer's state."""
    if optimizing.schedule is not None:
        with warnings.catch_warnings():  # that the optimizer has taken no step before
            warnings.simplefilter("ignore")
            optimizing.schedule.step()
    run.recorder.phase = Phase.LOAD
    with run.recorder:
        run.parts["load"](module, optimizing.optimizer, Path(run.work.checkpoint))
    params = parameters_of(module, run.problem.params)
    kept = optimizing.state(params)
    run.judge.of_parameters(Kind.OPTIMIZER_STATE, kept, SAVED.step)
    for name, param in params.items():
        run.judge.check(Kind.PARAM, str(InPass(name, SAVED)), param.detach())
    return kept
