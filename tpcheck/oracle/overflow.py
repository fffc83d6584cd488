"""Gradients that overflow under a loss that is scaled: one on purpose, others by their size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from tpcheck.case import Case
from tpcheck.protocol.optimizing import once
from tpcheck.protocol.problem import Problem, Values
from tpcheck.protocol.scaling import Overflow
from tpcheck.spec import Spec
from tpcheck.tensors.draw import generator
from tpcheck.tensors.names import STEP, InPass, parameters_of
from tpcheck.vocabulary import Kind

#: How many times as large as what must not overflow the largest number of a dtype is: in another
#: order a sum may be larger.
ROOM = 8.0
#: The chance that a step is the first one in which a gradient is made infinite.
OFTEN = 0.3


def draw_overflow(spec: Spec, case: Case, module: Any) -> Overflow | None:
    """In one of the steps, or in none, where the loss is scaled: of any parameter."""
    if spec.training is None or spec.training.scaling is None:
        return None
    params = {name: p.numel() for name, p in once(parameters_of(module)).items()}
    names = [name for name, numel in params.items() if numel]
    draw = generator(case, "overflow")
    # step by step: the same in a run of fewer
    struck = torch.rand(spec.training.steps, generator=draw) < OFTEN
    if not bool(struck.any()) or not names:
        return None
    step, draw = int(struck.int().argmax()), generator(case, "overflows")
    name = names[int(torch.randint(len(names), (), generator=draw))]
    return Overflow(step, name, int(torch.randint(params[name], (), generator=draw)))


def overflows(problem: Problem, step: int) -> bool:
    """Whether a gradient of this step is made infinite."""
    return problem.overflow is not None and problem.overflow.step == step


@torch.no_grad()
def put(problem: Problem, params: Mapping[str, nn.Parameter], step: int) -> None:
    """Makes the element infinite, where the problem says so."""
    due = problem.overflow
    if due is None or due.step != step or (grad := params[due.name].grad) is None:
        return
    grad.view(-1)[due.element] = torch.inf


def near(params: Mapping[str, nn.Parameter], step: int, dtype: torch.dtype) -> frozenset[int]:
    """This step, where a gradient is near the largest number that the case's dtype has, or is no
    number."""
    grads = [p.grad for p in params.values() if p.grad is not None and p.grad.numel()]
    held = all(bool((g.abs() <= torch.finfo(dtype).max / ROOM).all()) for g in grads)
    return frozenset() if held else frozenset({step})


def by_norm(norm: Values, step: int) -> frozenset[int]:
    """This step, where the norm of gradients by which they are clipped is not finite: to nothing
    then, and where it is added up in another dtype or order to what it says."""
    held = all(bool(value.isfinite().all()) for value in norm.values())
    return frozenset() if held else frozenset({step})


def up_to(overflowed: frozenset[int], values: Values) -> Values:
    """What can be compared where a step may be left out or clipped to nothing, or not, as rounding
    has it: neither what that leaves nor anything after it.

    Args:
        overflowed: such steps.
    """
    first = min(overflowed, default=None)
    if first is None:
        return values

    def is_sure(key: tuple[str, str]) -> bool:
        kind, at = key[0], InPass.parse(key[1]).at
        left = kind in (Kind.PARAM, Kind.OPTIMIZER_STATE, Kind.GRAD_NORM)
        return at.step < first or (at.step == first and at != STEP and not left)

    return {key: value for key, value in values.items() if is_sure(key)}
