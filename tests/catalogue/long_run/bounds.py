"""How tight the bounds of a long run are: after each step, and for a fault in one gradient."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tests.catalogue.long_run.faults import RIGHT
from tests.catalogue.long_run.model import Clock, candidate, case_of
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.engines.engine import Engine
from tpcheck.oracle.effort import CONFIRM
from tpcheck.oracle.pose import Posed, pose
from tpcheck.protocol.problem import Target
from tpcheck.runner.runner import Runner
from tpcheck.tensors.names import InPass, Pass
from tpcheck.vocabulary import Kind

if TYPE_CHECKING:
    from tpcheck.check import Candidate

#: The gradient that is changed, and the steps, from 1, in which it is.
CHANGED, STEPS = "blocks.0.mlp.up.weight", (1, 5, 20)
#: Steps of ε per decade, and the ends of what is tried.
PER_DECADE, LEAST, MOST = 4, -8, 1


def table(engine: Engine, steps: int, tp: int, dtype: str, seed: int) -> Iterator[str]:
    """A line per step, and one for each fault."""
    case = case_of(tp, dtype, seed)
    check = RIGHT[False].check(case, steps, steps)
    posed = pose(check.spec, case, CONFIRM)
    yield f"tp={tp} {dtype}: how far off a parameter may be, over how far the step moves it"
    yield f"{'step':>4} {'median':>10} {'most':>10}   of its gradient {'median':>10} {'most':>10}"
    for step in range(steps):
        moved, gradients = ratios(posed, step), of_gradients(posed, step)
        yield (
            f"{step + 1:4} {median(moved):10.1e} {max(moved):10.1e}"
            f"   {'':15} {median(gradients):10.1e} {max(gradients):10.1e}"
        )
    for step in (k for k in STEPS if k <= steps):
        until = check if step == steps else RIGHT[False].check(case, step, step)
        known = posed if step == steps else pose(until.spec, case, CONFIRM)
        least = smallest(engine, until, known, step - 1)
        yield f"step {step}: a gradient that is off by {least:.1e} of itself is found by then"


def median(numbers: list[float]) -> float:
    return sorted(numbers)[len(numbers) // 2]


def ratios(posed: Posed, step: int) -> list[float]:
    """Of each parameter (its main copy, where it has one): what its norm may be off by, over how
    far the step moves it."""
    after, before = _values(posed, step), _values(posed, step - 1)
    return [
        _may(target) / float((target.value - before[name].value).norm())
        for name, target in after.items()
    ]


def _values(posed: Posed, step: int) -> Mapping[str, Target]:
    """The parameters after a step; before the first one, as they were drawn."""
    problem = posed.problems[0]
    if step < 0:
        drawn = _values(posed, 0)
        return {
            name: replace(target, value=problem.params[name].double())
            for name, target in drawn.items()
        }
    found: dict[str, Target] = {}
    for target in problem.targets:
        name = InPass.parse(target.name)
        of_main = target.kind is Kind.OPTIMIZER_STATE and name.base.endswith(".main")
        if name.at == Pass(0, step) and (target.kind is Kind.PARAM or of_main):
            base = name.base.removesuffix(".main") if of_main else name.base
            if of_main or base not in found:
                found[base] = target
    return {name: target for name, target in found.items() if target.value.numel()}


def of_gradients(posed: Posed, step: int) -> list[float]:
    """Of each gradient of a step: what its norm may be off by, over its norm."""
    own = (t for t in posed.problems[0].targets if t.kind is Kind.PARAM_GRAD)
    return [
        _may(t) / float(t.value.norm())
        for t in own
        if InPass.parse(t.name).at == Pass(0, step) and float(t.value.norm())
    ]


def _may(target: Target) -> float:
    """What the norm of a tensor's error may be."""
    sigma = target.spread.sigma
    if not bool(sigma.isfinite().all()):
        return math.inf
    size = float(sigma.norm())
    # as `bounds.compare` has it: few elements that make up σ are few independent errors
    count = size**4 / float(sigma.pow(4).sum()) if size else 1.0
    return target.spread.norm_limit(int(max(1.0, count))) * size


# ---- a fault in one gradient


def smallest(engine: Engine, check: Check, posed: Posed, step: int) -> float:
    """The least ε of a grid at which a gradient times 1 + ε, in one step, is found: what is found
    at one is found at larger ones."""

    def is_found(epsilon: float) -> bool:
        wrong = replace(check, candidate=changed(step, epsilon), overrides={})
        return bool(Runner(wrong, engine).execute(posed, closely=False).mismatches)

    grid = [10 ** (k / PER_DECADE) for k in range(LEAST * PER_DECADE, MOST * PER_DECADE + 1)]
    return [*grid, math.inf][bisect_left(grid, True, key=is_found)]


def changed(step: int, epsilon: float) -> Candidate:
    """The right model, the gradient of one parameter of which is times 1 + ε in one step."""
    build = candidate(step, sequence_parallel=False)

    def altered(case: Case, mesh: Any) -> nn.Module:
        module = build(case, mesh)
        clock: Clock = module.clock

        def times(grad: Tensor) -> Tensor:
            if clock.step != step:
                return grad
            return (grad.double() * (1.0 + epsilon)).to(grad.dtype)

        module.get_parameter(CHANGED).register_hook(times)
        return module

    return altered
