"""A step of a candidate's own optimizer, held against what the spec's optimizer makes of the same
numbers: the parameters, state and gradients that the candidate has before it.

What rounding in forward and backward does to a step is in the gradients, which are compared by
themselves. In half precisions it decides the sign of what Adam divides by its own size, so that a
bound from the reference's steps is wider than a step. What is left here is the step's own rounding.

Letters: u the unit roundoff of what takes the step, p before it and p′ after it in float64.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.bounds import compare, limits
from tpcheck.bounds.arithmetic import UNIT_ROUNDOFF, rounding
from tpcheck.bounds.floor import KNOWN
from tpcheck.bounds.limits import FALSE_ALARM
from tpcheck.bounds.spread import Spread
from tpcheck.protocol.optimizing import MAIN, main_dtype, once
from tpcheck.protocol.problem import Target
from tpcheck.ranks.trial import (
    Given,
    Later,
    Numbers,
    Trial,
    largest,
    numbers,
    steps_each_element_by_itself,
)
from tpcheck.tensors.draw import torch_dtype
from tpcheck.tensors.live import local
from tpcheck.tensors.names import InPass, Pass, parameters_of
from tpcheck.tensors.terms import has_terms
from tpcheck.training import Training
from tpcheck.vocabulary import Kind

#: Roundings of an element one after the other, of the size of u·(|p| + |p′|): torch's AdamW has
#: four of p and eight of what is added to it. Fewer, and an optimizer that orders them otherwise is
#: called wrong; with many more, small decays hide.
ROUNDINGS = 16
#: By how much the largest error of a step in the candidate's own dtype is enlarged, which shows
#: what is lost where terms cancel: it is one run of one order of operations.
ENLARGED = 4.0


@dataclass(frozen=True)
class _Due:
    """What a step is to leave of a tensor.

    Args:
        value: in exact arithmetic.
        rounded: how far it may be off by its own roundings.
        others: what other trials leave of it: in the candidate's dtype, of larger and of smaller
            gradients.
    """

    value: Tensor
    rounded: Tensor
    others: Callable[[], Sequence[Tensor]] = tuple

    @property
    def apart(self) -> float:
        """How much further it may be off: by what is lost where terms cancel, and by the gradient's
        own rounding.

        Raises:
            Exception: as `others` does.
        """
        each = (largest(other - self.value) for other in self.others())
        return sum(times * one for times, one in zip((ENLARGED, 1.0, 1.0), each, strict=False))


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
        #: name → the gradient, and its unit roundoff
        self._gradients: dict[str, tuple[Tensor, float]] = {}
        self._whole: set[str] = set()
        #: the step itself; None where nothing can be told
        self._trial: Trial | None = None
        #: in the candidate's dtype, and of larger and smaller gradients
        self._others = Later([])
        self._begun = False
        if run.parts.get("optimizer") is None:
            return
        own = once(parameters_of(module, run.problem.params))
        like = {name: numbers(parameter) for name, parameter in own.items()}
        low = {name: tensor.to(self._held or own[name].dtype) for name, tensor in like.items()}
        with contextlib.suppress(Exception):  # it is made for whole parameters, and refuses a part
            exact, *others = (
                Trial(training, of, sign)
                for of, sign in zip((like, low, like, like), (0, 0, 1, -1), strict=True)
            )
            self._trial, self._others = exact, Later(others)

    def resumed(self, kept: Mapping[str, Tensor]) -> None:
        """The state is what a checkpoint had, after a step."""
        self._kept = {name: numbers(tensor) for name, tensor in kept.items()}
        self._others.begin(None)
        try:
            if self._trial is not None:
                self._trial.count()
        except Exception:
            self._trial = None

    def begin(self, params: Mapping[str, nn.Parameter], step: int, scale: float = 1.0) -> None:
        """A step is next: gradients are whole, clipped, and by this scale of the loss too large."""
        if self._trial is not None and not self._begun and not self._can_be_told(params):
            self._trial = None
        if self._trial is None:
            return
        self._begun = True
        self._before = {name: numbers(params[name]) for name in once(params)}
        self._gradients = {  # now, since a step may change or free them
            name: (numbers(grad) / scale, UNIT_ROUNDOFF.get(grad.dtype, 0.0))
            for name in self._before
            if (grad := params[name].grad) is not None
        }
        self._whole = {name for name in self._gradients if self._is_whole(name, step)}

    def end(
        self, params: Mapping[str, nn.Parameter], kept: Mapping[str, Tensor], step: int
    ) -> None:
        """Judges what the step has left, before it is compared with the reference's."""
        if self._trial is None:
            return
        due = self.run.problem.overflow
        if due is None or due.step != step:
            self._judge(self._trial, params, kept, step)
        self._kept = {name: numbers(tensor) for name, tensor in kept.items()}

    # ---- which steps can be told

    def _is_whole(self, name: str, step: int) -> bool:
        """Whether what is in `grad` is what the step takes."""
        target = self._target(Kind.PARAM_GRAD, name, step)
        return target is not None and not has_terms(target.entry)

    def _target(self, kind: Kind, name: str, step: int) -> Target | None:
        found: Target | None = self.run.judge.targets.get((kind, str(InPass(name, Pass(0, step)))))
        return found

    def _can_be_told(self, params: Mapping[str, nn.Parameter]) -> bool:
        wholes = {n: p.double().cpu() for n, p in self.run.problem.params.items()}
        wholes = {name: wholes[name] for name in once(params) if name in wholes}
        if wholes.keys() != once(params).keys():
            return False

        def part(name: str, whole: Tensor) -> Tensor:
            found: Tensor = self.run.judge.part(str(InPass(name, Pass(0, 0))), whole, params[name])
            return found.contiguous()  # where it has none, that raises, too

        try:
            return steps_each_element_by_itself(self.training, wholes, part)
        except Exception:  # or what it does then
            return False

    # ---- what is left

    def _judge(
        self,
        trial: Trial,
        params: Mapping[str, nn.Parameter],
        kept: Mapping[str, Tensor],
        step: int,
    ) -> None:
        """What takes the step is the main copy where there is one: of that the parameter is what
        rounding leaves."""
        stepped = {name: params[name].detach() for name in self._before}
        if self._held is not None:
            mains = {name: kept.get(f"{name}.{MAIN}") for name in stepped}
            stepped = {name: main.detach() for name, main in mains.items() if main is not None}
            for name, main in stepped.items():
                self._is_given_back(name, params[name], main, step)
        try:
            found = self._bounded(trial, stepped, kept)
        except Exception:  # of the spec's optimizer: the candidate's has taken its step
            self._trial = None
            return
        for (name, key), due in found.items():
            if key:
                own = kept[f"{name}.{key}"]
                self._hold(Kind.OPTIMIZER_STATE, f"{name}.{key}", own, due, step)
            elif self._held is not None:
                where = f"{name}.{MAIN}"
                self._hold(Kind.OPTIMIZER_STATE, where, stepped[name], due, step)
            else:
                self._hold(Kind.PARAM, name, stepped[name], due, step)

    def _is_given_back(self, name: str, parameter: nn.Parameter, main: Tensor, step: int) -> None:
        due = numbers(main)
        if due.shape == local(parameter).shape:
            apart = 2 * rounding(due.abs(), parameter.dtype)  # it may be a random one
            self._hold(Kind.PARAM, name, parameter.detach(), _Due(due, apart), step)

    def _bounded(
        self, trial: Trial, stepped: Mapping[str, Tensor], kept: Mapping[str, Tensor]
    ) -> dict[tuple[str, str], _Due]:
        """Name, and key of its state, or nothing for what takes the step → what is due. Of those
        alone that the candidate keeps as the spec's optimizer does."""
        given = {name: self._given(name) for name in self._before}
        self._others.begin(given)
        left, others, found = trial.step(given), self._others, {}
        for name, tensor in stepped.items():
            exact = left.get(name)
            if exact is None:
                continue
            if not self._is_kept_alike(name, given[name], exact, local(tensor).shape, kept):
                continue
            size = given[name].state | {"": given[name].number}
            for key, due in exact.items():
                sizes = due.abs() + size.get(key, due).abs()
                rounded = ROUNDINGS * rounding(sizes, tensor.dtype)
                own = partial(_of_each, others, name, key)
                found[name, key] = _Due(due, rounded, own)
        return found

    def _given(self, name: str) -> Given:
        """What takes the step may have had the gradient in more digits."""
        place = f"{name}.{MAIN}" if self._held is not None else ""
        number, state = self._kept.get(place, self._before[name]), _of(name, self._kept)
        if name not in self._gradients:
            return Given(number, None, state)
        gradient, u = self._gradients[name]
        return Given(
            number, gradient if name in self._whole else torch.zeros_like(number), state, u
        )

    def _is_kept_alike(
        self,
        name: str,
        begun: Given,
        left: Numbers,
        shape: torch.Size,
        kept: Mapping[str, Tensor],
    ) -> bool:
        own = _of(name, kept)
        if name not in self._whole or not begun.number.shape == shape == left[""].shape:
            return False
        if not shape:  # its state looks like a count of steps
            return False
        if begun.state.keys() != own.keys() and (begun.state or self._kept):
            return False
        keeps = {key: tensor.shape for key, tensor in left.items() if key}
        return keeps == {key: local(tensor).shape for key, tensor in own.items()}

    def _hold(self, kind: Kind, name: str, actual: Tensor, due: _Due, step: int) -> None:
        """A difference is evidence by itself, which no closer bounds of the reference's clear."""
        where, here = str(InPass(name, Pass(0, step))), local(actual).detach().cpu()
        apart = (here.double() - due.value).abs()
        if bool((apart <= due.rounded).all()) or self._target(kind, name, step) is None:
            return
        try:
            bound = due.rounded + due.apart
        except Exception:  # as of the step itself
            self._trial = None
            return
        if not bool(bound.isfinite().all()) or bool((apart <= bound).all()):
            return
        sigma = bound / limits.elementwise_limit(due.value.numel(), KNOWN, FALSE_ALARM)
        known = Spread(sigma, KNOWN, KNOWN)
        found = compare.compare(here, due.value, known, name=where, kind=kind, rank=self.run.rank)
        if found.mismatch is not None:
            self.run.report.mismatches.append(found.mismatch)
            self.run.judge.decided.add((kind, where))


def _of_each(trials: Later, name: str, key: str) -> list[Tensor]:
    """What they leave of a parameter, or of its state: infinite where their dtype does not hold the
    state that they were given, so that nothing is told of this one."""
    each = (left.get(name) for left in trials.left())
    return [torch.tensor(torch.inf) if own is None else own[key] for own in each]


def _of(name: str, kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Key → a parameter's state, its main copy left out."""
    own = {n.removeprefix(f"{name}."): t for n, t in kept.items() if n.startswith(f"{name}.")}
    own.pop(MAIN, None)
    return own
