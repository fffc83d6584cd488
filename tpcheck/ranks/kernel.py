"""One call of a kernel in place of a model's passes: watched, and held to its discipline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tpcheck.evidence import Stray
from tpcheck.kernels.watch import OutOfBounds
from tpcheck.ranks.discipline import Discipline, Kept, observed
from tpcheck.spec import Kernel
from tpcheck.tensors.names import Pass
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind, Phase


def run_kernel(run: Any, function: Any, rules: Kernel) -> None:
    """The call, backward, and both again. Ends where an output's shape is wrong.

    Args:
        run: the `RankRun`.
    """
    told = run.report.mismatches
    leaves, seeds = run.share.leaves(run.problem.inputs[0]), run.share.seeds(0)
    own = {**leaves, **{f"d {name}": seed for name, seed in seeds.items()}}
    discipline = Discipline(
        rules, run.rank, lambda inputs: run.forward(function, inputs), told.append
    )
    with observed(own) as watch:
        kept = Kept(leaves), Kept(seeds)
        run.recorder.phase = Phase.FORWARD
        outputs = run.forward(function, leaves)
        if not run.judge.outputs(outputs, Pass(0)):
            return
        run.recorder.phase = Phase.BACKWARD
        _backward(run, outputs, seeds)
        run.judge.input_gradients(leaves, Pass(0))
        discipline.unchanged(*kept)
        gradients = {n: t.grad for n, t in leaves.items() if t.grad is not None}
        fresh = run.share.leaves(run.problem.inputs[0])
        discipline.repeated(outputs, gradients, fresh, seeds)
    run.report.masks = set() if watch is None else watch.masks
    races = [] if watch is None else watch.races
    told += [Mismatch(race.tensor, Kind.RACE, run.rank, detail=race) for race in races]


def _backward(run: Any, outputs: Mapping[str, Tensor], seeds: Mapping[str, Tensor]) -> None:
    roots = [name for name in seeds if name in outputs and outputs[name].requires_grad]
    if roots:
        with run.recorder:
            torch.autograd.backward([outputs[n] for n in roots], [seeds[n] for n in roots])


def stray_of(error: BaseException | None) -> Stray | None:
    """The access that Triton's interpreter was stopped at, where that is why it raised."""
    while error is not None and not isinstance(error, OutOfBounds):
        error = error.__cause__
    return None if error is None else error.stray
