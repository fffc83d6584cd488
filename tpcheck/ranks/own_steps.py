"""A step of a candidate's own optimizer, held against what the spec's optimizer makes of the same
numbers: the parameters, state and gradients that the candidate has before it.

What rounding in forward and backward does to a step is in the gradients, which are compared by
themselves. In half precisions it decides the sign of what Adam divides by its own size, so that a
bound from the reference's steps is wider than a step. What is left here is the step's own rounding.

Letters: u the unit roundoff of what takes the step, p before it and p′ after it in float64.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.bounds import compare, limits
from tpcheck.bounds.arithmetic import UNIT_ROUNDOFF
from tpcheck.bounds.floor import KNOWN
from tpcheck.bounds.limits import FALSE_ALARM
from tpcheck.bounds.spread import Spread
from tpcheck.placement import Partial, by_axis
from tpcheck.protocol.optimizing import MAIN, Optimizing, main_dtype, once
from tpcheck.protocol.problem import Target
from tpcheck.tensors.draw import torch_dtype
from tpcheck.tensors.live import local
from tpcheck.tensors.names import InPass, Pass, parameters_of
from tpcheck.training import Training
from tpcheck.vocabulary import Kind

#: Roundings of an element one after the other, of the size of u·(|p| + |p′|): torch's AdamW has
#: four of p and eight of what is added to it. Fewer, and an optimizer that orders them otherwise is
#: called wrong; with many more, small decays hide.
ROUNDINGS = 16
#: By how much the largest error of a step in the candidate's own dtype is enlarged, which shows
#: what is lost where terms cancel: it is one run of one order of operations.
ENLARGED = 4.0
#: How far two steps of a part and of the whole may be apart, relative to the largest number, where
#: each element is stepped by itself: vectorized and not, they round differently.
APART = 1e-9

#: Name → tensor, float64 on the CPU
Numbers = dict[str, Tensor]


class OwnSteps:
    """The steps of one candidate's optimizer on one rank. The spec's own needs none of this.

    Args:
        run: the `RankRun`.
    """

    def __init__(self, run: Any, module: nn.Module, training: Training) -> None:
        self.run, self.training = run, training
        self._held = main_dtype(training.main, torch_dtype(run.case))
        self._kept: Numbers = {}
        self._before: Numbers = {}
        self._gradients: Numbers = {}
        self._optimizing: Optimizing | None = None
        if run.parts.get("optimizer") is None:
            return
        own = once(parameters_of(module))
        self._named = {name: nn.Parameter(_numbers(p)) for name, p in own.items()}
        with contextlib.suppress(Exception):  # it is made for whole parameters, and refuses a part
            self._optimizing = self._made(self._named)

    def _made(self, named: Mapping[str, nn.Parameter]) -> Optimizing:
        training = self.training
        return Optimizing(training.optimizer(named), training.schedule, "training's optimizer")

    def resumed(self, kept: Mapping[str, Tensor]) -> None:
        """The state is what a checkpoint had, after as many steps of the schedule."""
        self._kept = {name: _numbers(tensor) for name, tensor in kept.items()}
        if self._optimizing is not None and self._optimizing.schedule is not None:
            self._optimizing.schedule.step()

    def begin(self, params: Mapping[str, nn.Parameter], step: int) -> None:
        """A step is next: gradients are whole, and clipped."""
        if self._optimizing is None:
            return
        self._before = {name: _numbers(params[name]) for name in self._named}
        self._gradients = {
            name: _numbers(grad)
            for name in self._named
            if (grad := params[name].grad) is not None and self._is_whole(name, step)
        }
        if step == 0 and not self._can_be_told(params):
            self._optimizing = None

    def end(
        self, params: Mapping[str, nn.Parameter], kept: Mapping[str, Tensor], step: int
    ) -> None:
        """Judges what the step has left, before it is compared with the reference's."""
        if self._optimizing is None:
            return
        due = self.run.problem.overflow
        if due is None or due.step != step:
            for name in self._named:
                self._judge(name, params[name], kept, step)
            if self._optimizing.schedule is not None:
                self._optimizing.schedule.step()
        self._kept = {name: _numbers(tensor) for name, tensor in kept.items()}

    # ---- which steps can be told

    def _is_whole(self, name: str, step: int) -> bool:
        """Whether what is in `grad` is what the step takes."""
        target = self._target(Kind.PARAM_GRAD, name, step)
        placements = by_axis(target.entry).values() if target else [Partial()]
        return not any(isinstance(placement, Partial) for placement in placements)

    def _target(self, kind: Kind, name: str, step: int) -> Target | None:
        found: Target | None = self.run.judge.targets.get((kind, str(InPass(name, Pass(0, step)))))
        return found

    def _can_be_told(self, params: Mapping[str, nn.Parameter]) -> bool:
        try:
            return self._treats_each_element_by_itself(params)
        except Exception:  # or what it does then
            return False

    def _treats_each_element_by_itself(self, params: Mapping[str, nn.Parameter]) -> bool:
        """Whether the spec's optimizer makes of a part the part of what it makes of the whole."""
        whole = {n: p.double().cpu() for n, p in self.run.problem.params.items()}
        whole = {name: whole[name] for name in self._named if name in whole}
        made = {n: nn.Parameter(tensor.clone()) for n, tensor in whole.items()}
        of_part: dict[str, nn.Parameter] = {}
        for name, parameter in made.items():
            parameter.grad = _waves(parameter)
            part = self._part(params, name, whole[name])
            if part is not None:
                of_part[name] = nn.Parameter(part.clone())
                of_part[name].grad = self._part(params, name, parameter.grad)
        if made.keys() != self._named.keys() or of_part.keys() != made.keys():
            return False
        for named in (made, of_part):
            self._made(named).optimizer.step()
        for name, parameter in of_part.items():
            due = self._part(params, name, made[name].detach())
            if due is None or not _alike(parameter.detach(), due):
                return False
        return True

    def _part(self, params: Mapping[str, nn.Parameter], name: str, whole: Tensor) -> Tensor | None:
        found = self.run.judge.part(str(InPass(name, Pass(0, 0))), whole, params[name])
        return None if found is None else found.contiguous()

    # ---- one parameter

    def _judge(
        self, name: str, parameter: nn.Parameter, kept: Mapping[str, Tensor], step: int
    ) -> None:
        """What takes the step is the main copy where there is one: of that the parameter is what
        rounding leaves."""
        stepped, prefix = parameter.detach(), f"{name}."
        if self._held is not None:
            if (main := kept.get(prefix + MAIN)) is None:
                return
            stepped = main.detach()
            self._is_given_back(name, parameter, stepped, step)
        own = {n.removeprefix(prefix): t for n, t in kept.items() if n.startswith(prefix)}
        own.pop(MAIN, None)
        found = self._bounded(name, stepped, own, parameter.grad)
        for key, (expected, bound) in found.items():
            if key:
                self._hold(Kind.OPTIMIZER_STATE, prefix + key, own[key], expected, bound, step)
            elif self._held is not None:
                where = prefix + MAIN
                self._hold(Kind.OPTIMIZER_STATE, where, stepped, expected, bound, step)
            else:
                self._hold(Kind.PARAM, name, stepped, expected, bound, step)

    def _is_given_back(self, name: str, parameter: nn.Parameter, main: Tensor, step: int) -> None:
        due = _numbers(main)
        if due.shape == local(parameter).shape:
            apart = 2 * UNIT_ROUNDOFF[parameter.dtype] * due.abs()  # rounding may be a random one
            self._hold(Kind.PARAM, name, parameter.detach(), due, apart, step)

    def _bounded(
        self,
        name: str,
        stepped: Tensor,
        own: Mapping[str, Tensor],
        grad: Tensor | None,
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Key of the state, or nothing for what takes the step → what is due, and how far it may be
        off. Empty where the candidate keeps it otherwise than the spec's optimizer."""
        place = f"{name}.{MAIN}" if self._held is not None else ""
        before = self._kept.get(place, self._before[name])
        given = self._gradients.get(name)
        state = {key: self._kept[f"{name}.{key}"] for key in own if f"{name}.{key}" in self._kept}
        if given is None or grad is None or not before.shape == given.shape == _shape(stepped):
            return {}
        if before.ndim == 0:  # its state looks like a count of steps
            return {}
        if state.keys() != own.keys() and (state or self._kept):
            return {}
        exact = self._stepped(name, before, state, given, torch.float64)
        keeps = {key: tensor.shape for key, tensor in exact.items() if key}
        if keeps != {key: _shape(tensor) for key, tensor in own.items()}:
            return {}
        low = self._stepped(name, before, state, given, stepped.dtype)
        apart = {key: ENLARGED * _largest(low[key] - exact[key]) for key in exact}
        for sign in (1, -1):  # what takes the step may have had the gradient in more digits
            u = sign * UNIT_ROUNDOFF.get(grad.dtype, 0.0)
            moved = self._stepped(name, before, state, given * (1 + u), torch.float64)
            apart = {key: apart[key] + _largest(moved[key] - exact[key]) for key in exact}
        size, u = state | {"": before}, UNIT_ROUNDOFF[stepped.dtype]
        return {
            key: (due, apart[key] + ROUNDINGS * u * (due.abs() + size.get(key, due).abs()))
            for key, due in exact.items()
        }

    def _stepped(
        self, name: str, before: Tensor, state: Numbers, gradient: Tensor, dtype: torch.dtype
    ) -> Numbers:
        """What the spec's optimizer leaves of one parameter and its state, computed in `dtype`."""
        assert self._optimizing is not None, "asked for where there is one"
        optimizer, parameter = self._optimizing.optimizer, self._named[name]
        for other in self._named.values():
            other.grad = None
        parameter.data = before.to(dtype, copy=True)
        parameter.grad = gradient.to(dtype)
        optimizer.state.clear()
        if state:
            optimizer.state[parameter] = {
                key: t.to(dtype, copy=True) if t.shape == before.shape else t.clone()
                for key, t in state.items()
            }
        optimizer.step()
        left = self._optimizing.state({name: parameter})
        found = {key.removeprefix(f"{name}."): _numbers(tensor) for key, tensor in left.items()}
        return found | {"": _numbers(parameter)}

    def _hold(
        self, kind: Kind, name: str, actual: Tensor, due: Tensor, bound: Tensor, step: int
    ) -> None:
        """A difference is evidence by itself, which no closer bounds of the reference's clear."""
        where, here = str(InPass(name, Pass(0, step))), local(actual).detach().cpu()
        if self._target(kind, name, step) is None or not bool(bound.isfinite().all()):
            return
        if bool(((here.double() - due).abs() <= bound).all()):
            return
        sigma = bound / limits.elementwise_limit(due.numel(), KNOWN, FALSE_ALARM)
        known = Spread(sigma, KNOWN, KNOWN)
        found = compare.compare(here, due, known, name=where, kind=kind, rank=self.run.rank)
        if found.mismatch is not None:
            self.run.report.mismatches.append(found.mismatch)
            self.run.judge.decided.add((kind, where))


def _numbers(tensor: Tensor) -> Tensor:
    """A copy of what this rank has of it."""
    return local(tensor).detach().to("cpu", torch.float64, copy=True)


def _shape(tensor: Tensor) -> torch.Size:
    return local(tensor).shape


def _largest(error: Tensor) -> float:
    return float(error.abs().max()) if error.numel() else 0.0


def _waves(like: Tensor) -> Tensor:
    """Gradients of both signs, no two alike."""
    return torch.arange(1, like.numel() + 1, dtype=torch.float64).sin().reshape(like.shape)


def _alike(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    return _largest(one - other) <= APART * _largest(other)
