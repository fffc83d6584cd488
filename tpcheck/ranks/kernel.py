"""One call of a kernel in place of a model's passes: watched, and held to its discipline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tpcheck.evidence import Scene, Stray
from tpcheck.kernels import refusals
from tpcheck.kernels.registered import Calls
from tpcheck.kernels.watch import Stopped
from tpcheck.ranks import compiled, opchecked
from tpcheck.ranks.discipline import Discipline, Kept, observed, roots_and_seeds
from tpcheck.spec import Kernel
from tpcheck.tensors.names import Pass
from tpcheck.tensors.ops import lacks_backward
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind, Phase, Uncompiled


def run_kernel(run: Any, function: Any, rules: Kernel) -> None:
    """The call, backward, and both again. Ends where an output's shape is wrong.

    Args:
        run: the `RankRun`.
    """
    told = run.report.mismatches
    leaves, seeds = _leaves(run, rules), _seeds(run, function)
    own = {**leaves, **{f"d {name}": seed for name, seed in seeds.items()}}
    discipline = Discipline(
        rules, run.rank, lambda inputs: run.forward(function, inputs), told.append
    )
    if run.case.world_size > 1:
        run.recorder.make_late()
    before = compiled.graphs()
    with observed(own, run.report, run.work.of_kernels), compiled.within_limits():
        kept = Kept(leaves), Kept(seeds)
        run.recorder.phase = Phase.FORWARD
        outputs = run.forward(function, leaves)
        if not run.judge.outputs(outputs, Pass(0), wider=True):
            return
        run.recorder.phase = Phase.BACKWARD
        _backward(run, outputs, seeds)
        run.recorder.built()  # what is compiled is, now
        discipline.retains = eager = compiled.graphs() == before
        run.judge.input_gradients(leaves, Pass(0))
        for name in rules.constants:
            run.judge.check(Kind.INPUT_GRAD, name, None)
        run.recorder.witnesses = frozenset()  # what runs again counts for nothing
        discipline.unchanged(*kept)
        gradients = {n: t.grad for n, t in leaves.items() if t.grad is not None}
        fresh, upstream = _leaves(run, rules), partial(_seeds, run, function)
        discipline.repeated(outputs, gradients, fresh, upstream)
        if rules.opcheck and not told and eager and run.case.world_size == 1:
            told += _opchecked(run, function, rules)
    if eager and run.report.compiles and not run.work.eager and not told:
        run.report.uncompiled = Uncompiled.NOTHING if _computes(outputs, leaves) else None


def _computes(outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> bool:
    """Whether there is more in the outputs than what is there already: of that nothing is
    compiled."""
    held = {t.untyped_storage().data_ptr() for t in inputs.values()}
    return any(t.numel() and t.untyped_storage().data_ptr() not in held for t in outputs.values())


def _leaves(run: Any, rules: Kernel) -> dict[str, Tensor]:
    """Fresh inputs."""
    leaves: dict[str, Tensor] = run.share.leaves(run.problem.inputs[0])
    return {
        n: t.requires_grad_(t.requires_grad and n not in rules.constants) for n, t in leaves.items()
    }


def _seeds(run: Any, function: Any) -> dict[str, Tensor]:
    """Upstream gradients; none where backward would raise for want of a formula: gradients are
    missing then."""
    seeds: dict[str, Tensor] = {} if lacks_backward(function) else run.share.seeds(0)
    return seeds


def _opchecked(run: Any, function: Any, rules: Kernel) -> list[Mismatch]:
    """What ops of `torch.library` that the function calls are registered as and are not."""

    def once(calls: Calls) -> list[Tensor]:
        leaves, seeds = _leaves(run, rules), _seeds(run, function)
        with calls.forwards():
            outputs = run.forward(function, leaves)
        with calls.backwards():
            _backward(run, outputs, seeds)
        return [*outputs.values(), *(t.grad for t in leaves.values() if t.grad is not None)]

    about = {"rank": run.rank, "seed": run.case.seed, "targets": run.problem.targets}
    return list(opchecked.mismatches(function, once, **about))


def _backward(run: Any, outputs: Mapping[str, Tensor], seeds: Mapping[str, Tensor]) -> None:
    roots, made = roots_and_seeds(outputs, seeds)
    if roots:
        with run.recorder:
            torch.autograd.backward(roots, made)


def stopped_by(error: BaseException, rank: int, at: Scene) -> Mismatch | None:
    """What Triton's interpreter was stopped at, where that is why it raised."""
    for one in _causes(error):
        if isinstance(one, Stopped):
            found = replace(one.found, scene=at)
            about = found.tensor if isinstance(found, Stray) else found.kernel
            return Mismatch(about, Kind.MEMORY, rank, detail=found)
    return None


def unmodelled_by(error: BaseException) -> str:
    """What Triton's interpreter does not do as a GPU does, where that is why it raised; else
    nothing."""
    return next(filter(None, map(refusals.unmodelled, _causes(error))), "")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and what each was raised from: the interpreter raises its own from a
    kernel's."""
    while error is not None:
        yield error
        error = error.__cause__
