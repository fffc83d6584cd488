"""Calls of a kernel in place of a model's passes: watched, and held to its discipline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.discipline import Kernel
from tpcheck.evidence import Scene, Stray
from tpcheck.kernels import interpreter, refusals
from tpcheck.kernels.configurations import chosen
from tpcheck.kernels.registered import Calls
from tpcheck.kernels.stopped import Stopped
from tpcheck.kernels.watch import watching
from tpcheck.process import branches
from tpcheck.process.aspects import Left
from tpcheck.protocol.messages import RankReport
from tpcheck.ranks import compiled, opchecked
from tpcheck.ranks.discipline import Discipline, roots_and_seeds
from tpcheck.ranks.kept import Kept, Tensors
from tpcheck.tensors.forms import dense
from tpcheck.tensors.in_place import changing
from tpcheck.tensors.leaves import Quiet, quiet, takes_gradients
from tpcheck.tensors.names import UPSTREAM, InPass, Pass
from tpcheck.tensors.ops import lacks_backward
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind, Phase, Uncompiled

#: In one of so many cases a call is followed by several others, as a ring of buffers needs.
RINGS, OTHERS = 4, 4


@dataclass
class _Call:
    """One call of the case, and what came of it.

    Args:
        at: its pass: two calls have numbers of their own.
    """

    at: Pass
    leaves: dict[str, Tensor]
    seeds: dict[str, Tensor]
    outputs: dict[str, Tensor] = field(default_factory=dict)

    @property
    def gradients(self) -> dict[str, Tensor]:
        """What backward has left, by now."""
        return {n: t.grad for n, t in self.leaves.items() if t.grad is not None}

    @property
    def own(self) -> dict[str, Tensor]:
        """All that it is given, by names of its own."""
        given = {**self.leaves, **{UPSTREAM + name: seed for name, seed in self.seeds.items()}}
        return {str(InPass(name, self.at)): tensor for name, tensor in given.items()}


def run_kernel(run: Any, function: Any, rules: Kernel) -> None:
    """The calls, their backwards, and the first one again. Ends where an output's shape is wrong.

    Args:
        run: the `RankRun`.
    """
    told, called = run.report.mismatches, _called(run, function, rules)

    def call(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        phase, run.recorder.phase = run.recorder.phase, Phase.FORWARD
        with _without_gradients(run.case):
            wanted = torch.is_grad_enabled()
            outputs: dict[str, Tensor] = run.forward(called, inputs)
            run.recorder.phase = phase  # unless it raises
            if torch.is_grad_enabled() != wanted:
                run.report.left += [Left("torch.is_grad_enabled", restored=True)]
        return outputs

    calls = [
        _Call(Pass(m), _leaves(run, rules, m), _seeds(run, function, m))
        for m in range(len(run.problem.inputs))
    ]
    alone = run.case.world_size == 1
    recorder = None if alone else run.recorder  # peers may wait in a collective of a backward
    discipline = Discipline(rules, run.rank, call, told.append, alone=alone, recorder=recorder)
    if not alone:
        run.recorder.make_late()
    before, own = compiled.graphs(), {n: t for one in calls for n, t in one.own.items()}
    kernels = observed(own, run.report, run.work.of_kernels, run.recorder.turn)
    with kernels, compiled.within_limits():
        kept = [(Kept(one.leaves), Kept(one.seeds)) for one in calls]
        run.recorder.phase = Phase.FORWARD
        for one in calls:
            with _apart(discipline, calls, one):
                one.outputs = call(one.leaves)
            if not run.judge.outputs(one.outputs, one.at, wider=True):
                run.report.stopped = True
                return
        run.recorder.phase = Phase.BACKWARD
        for one in calls[::-1] if run.case.seed % 2 else calls:
            with _apart(discipline, calls, one):
                _backward(run, one.outputs, one.seeds)
            run.judge.input_gradients(one.leaves, one.at)
        run.recorder.built()  # what is compiled is, now
        discipline.retains = eager = compiled.graphs() == before
        for name in [str(InPass(n, one.at)) for n in rules.constants for one in calls]:
            run.judge.check(Kind.INPUT_GRAD, name, None)
        run.recorder.witnesses = frozenset()  # what runs again counts for nothing
        branches.end()
        for each in kept:
            discipline.unchanged(*each)
        fresh, upstream = partial(_leaves, run, rules), partial(_seeds, run, function)
        others = 1 if run.case.seed % RINGS else OTHERS
        first = calls[0]
        if run.work.again:
            discipline.repeated(first.outputs, first.gradients, fresh, upstream, others=others)
            run.report.stopped = discipline.over
        if rules.opcheck and not told and eager and alone:
            told += _opchecked(run, function, called, rules)
    if eager and run.report.compiles and not run.work.eager and not told:
        run.report.uncompiled = Uncompiled.NOTHING if _computes(first) else None


@contextmanager
def observed(
    own: Tensors, report: RankReport, configuration: int, turn: Callable[[], None]
) -> Iterator[None]:
    """Kernels that run meanwhile in Triton's interpreter compute as on a GPU, and touch what is
    theirs.

    Args:
        own: tensors of which they may touch nothing but the elements.
        report: is given their races, and what is seen of them; what else they do is raised.
        configuration: the index of that in which autotuned ones run.
        turn: called as each program begins.
    """
    if not interpreter.interprets():
        yield
        return
    interpreter.install_once_imported()
    with watching(own, turn) as watch, chosen(configuration) as choice:
        yield
    races = (Mismatch(race.tensor, Kind.RACE, report.rank, detail=race) for race in watch.races)
    report.mismatches += races
    report.ways |= watch.ways
    report.undefined |= watch.undefined
    report.configurations = choice.known


def _without_gradients(case: Case) -> AbstractContextManager[Any]:
    """The mode in which a case calls the function: that of one that asks for no gradient."""
    match quiet(case):
        case Quiet.NO_GRAD:
            return torch.no_grad()
        case Quiet.INFERENCE:
            return torch.inference_mode()
        case _:
            return contextlib.nullcontext()


def _called(run: Any, function: Any, rules: Kernel) -> Any:
    """The function, which may change what it overwrites."""
    places = rules.changed(run.problem.inputs[0])
    return changing(function, places) if places else function


@contextmanager
def _apart(discipline: Discipline, calls: Sequence[_Call], acting: _Call) -> Iterator[None]:
    """What this one does leaves alone what the others have returned."""
    with ExitStack() as stack:
        for other in calls:
            if other is not acting:
                stack.enter_context(discipline.apart(other.outputs, other.gradients))
        yield


def _computes(call: _Call) -> bool:
    """Whether there is more in its outputs than what is there already: of that nothing is
    compiled."""
    held = {t.untyped_storage().data_ptr() for t in call.leaves.values()}
    made = [t for t in call.outputs.values() if t.numel()]
    return any(t.untyped_storage().data_ptr() not in held for t in made)


def _leaves(run: Any, rules: Kernel, m: int = 0) -> dict[str, Tensor]:
    """Fresh inputs of a pass."""
    leaves = run.share.leaves(run.problem.inputs[m])
    return takes_gradients(run.case, leaves, rules.constants)


def _seeds(run: Any, function: Any, m: int = 0) -> dict[str, Tensor]:
    """Upstream gradients; none where backward would raise for want of a formula: gradients are
    missing then."""
    seeds: dict[str, Tensor] = {} if lacks_backward(function) else run.share.seeds(m)
    return seeds


def _opchecked(run: Any, function: Any, called: Any, rules: Kernel) -> list[Mismatch]:
    """What ops of `torch.library` that the function calls are registered as and are not.

    Args:
        called: the function, as a case calls it.
    """

    def once(calls: Calls) -> list[Tensor]:
        leaves, seeds = _leaves(run, rules), _seeds(run, function)
        with calls.forwards(), _without_gradients(run.case):
            outputs = run.forward(called, leaves)
        with calls.backwards():
            _backward(run, outputs, seeds)
        return [*outputs.values(), *(dense(t.grad) for t in leaves.values() if t.grad is not None)]

    about = {"rank": run.rank, "seed": run.case.seed, "targets": run.problem.targets}
    return list(opchecked.mismatches(function, once, **about))


def _backward(run: Any, outputs: Mapping[str, Tensor], seeds: Mapping[str, Tensor]) -> None:
    roots, made = roots_and_seeds(outputs, seeds)
    if roots:
        with run.recorder:
            torch.autograd.backward(roots, made)


def stopped_by(error: BaseException, rank: int, at: Scene) -> Mismatch | None:
    """What Triton's interpreter was stopped at, where that is why it raised."""
    for one in refusals.causes(error):
        if isinstance(one, Stopped):
            found = replace(one.found, scene=at)
            about = found.tensor if isinstance(found, Stray) else found.kernel
            return Mismatch(about, Kind.MEMORY, rank, detail=found)
    return None


def unmodelled_by(error: BaseException) -> str:
    """What Triton's interpreter does not do as a GPU does, where that is why it raised; else
    nothing."""
    return next(filter(None, map(refusals.unmodelled, refusals.causes(error))), "")
