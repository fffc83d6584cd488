"""The reference's optimizer once more, by its own gradients: what it leaves where they are others,
or where it begins later. No forward is run."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from tpcheck.protocol.conventions import CLIP_EPSILON
from tpcheck.protocol.optimizing import MAIN, Optimizing
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.names import NORM, InPass, Pass
from tpcheck.training import Training
from tpcheck.vocabulary import Kind


def value_of(problem: Problem, kind: Kind, base: str, step: int) -> Tensor | None:
    """What the reference has of a tensor in a step of training, float64."""
    name = str(InPass(base, Pass(0, step)))
    found = (t.value for t in problem.targets if (t.kind, t.name) == (kind, name))
    return next(found, None)


def share_of(problem: Problem, step: int) -> float:
    """By which the gradients of a step were clipped."""
    norm = value_of(problem, Kind.GRAD_NORM, NORM, step)
    if norm is None or step >= len(problem.most):
        return 1.0
    return min(1.0, problem.most[step] / (float(norm) + CLIP_EPSILON))


def by_one_step(problem: Problem, training: Training, step: int) -> dict[str, Tensor]:
    """What the optimizer keeps after one step, by the parameters and gradients of this one."""
    named: dict[str, nn.Parameter] = {}
    for name in problem.params:
        before = value_of(problem, Kind.PARAM, name, step - 1)
        copied = value_of(problem, Kind.OPTIMIZER_STATE, f"{name}.{MAIN}", step - 1)
        before = before if copied is None else copied
        if before is not None and value_of(problem, Kind.PARAM_GRAD, name, step) is not None:
            named[name] = nn.Parameter(before.clone())
    optimizing = _made(training, named)
    _step(optimizing, named, problem, step, share_of(problem, step))
    return optimizing.state(named)


def unclipped(
    problem: Problem, training: Training, step: int, *, without: str = ""
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What the optimizer keeps, and the parameters, after a step by gradients as they were before
    they were clipped; all steps before it were by clipped ones.

    Args:
        without: a parameter whose gradient is zero in that step.
    """
    drawn: dict[int, str] = {}
    for name, tensor in problem.params.items():
        if value_of(problem, Kind.PARAM_GRAD, name, 0) is not None:
            drawn.setdefault(id(tensor), name)  # a tied one once
    named = {name: nn.Parameter(problem.params[name].double().clone()) for name in drawn.values()}
    optimizing = _made(training, named)
    for k in range(step):
        _step(optimizing, named, problem, k, share_of(problem, k))
    _step(optimizing, named, problem, step, 1.0, without)
    left = {name: parameter.detach() for name, parameter in named.items()}
    return optimizing.state(named) | {f"{name}.{MAIN}": p for name, p in left.items()}, left


def _made(training: Training, named: Mapping[str, nn.Parameter]) -> Optimizing:
    return Optimizing(training.optimizer(named), training.schedule, "training's optimizer")


def _step(
    optimizing: Optimizing,
    named: Mapping[str, nn.Parameter],
    problem: Problem,
    step: int,
    share: float,
    without: str = "",
) -> None:
    for name, parameter in named.items():
        gradient = value_of(problem, Kind.PARAM_GRAD, name, step)
        of = 0.0 if name == without else share
        parameter.grad = None if gradient is None else of * gradient
    optimizing.step()
