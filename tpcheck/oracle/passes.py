"""A case walked through a module: forwards and backwards of every microbatch, and steps by what
they give.

`Passes` is the reference's walk, over one module and the data of all its dp coordinates; what it
names and how it steps are the ranks' too (`protocol/conventions`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle import overflow
from tpcheck.oracle.backward import Lift, backward, gradient
from tpcheck.oracle.forms import check_form
from tpcheck.oracle.masks import NONE, Masking, masking
from tpcheck.oracle.optimizing import end, optimizing_of, state_of
from tpcheck.oracle.own_buffers import OwnBuffers
from tpcheck.oracle.reference import ask, load
from tpcheck.oracle.walked import Cotangents, Walked
from tpcheck.protocol.conventions import (
    clip,
    named_outputs,
    sgd_step,
    total_norm,
)
from tpcheck.protocol.optimizing import Optimizing
from tpcheck.protocol.problem import Problem, Values
from tpcheck.spec import Spec
from tpcheck.tensors import case_mode, in_place
from tpcheck.tensors.boundaries import Watch
from tpcheck.tensors.draw import torch_dtype
from tpcheck.tensors.forms import dense, plain
from tpcheck.tensors.leaves import leaves as leaves_of
from tpcheck.tensors.names import NORM, STEP, InPass, Pass, Shelf, check_names
from tpcheck.vocabulary import Kind

#: (problem, microbatch, outputs) → the cotangents of its backward
CotangentsOf = Callable[[Problem, int, Mapping[str, Tensor]], Cotangents]


def forward(spec: Spec, module: Any, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One forward of the reference, as the spec says."""
    inputs = in_place.given(inputs, spec.overwrites)
    result = spec.forward(module, inputs) if spec.forward else module(*inputs.values())
    outputs = named_outputs(result, f"spec {spec.name!r}: the reference's forward")
    if not outputs:
        raise InvalidArgument(
            f"spec {spec.name!r}: the reference's forward returned no tensor, so nothing could be "
            "compared; return what the candidate is to compute"
        )
    check_names("output", outputs)
    for name, output in outputs.items():
        check_form(spec, "output", name, plain(output))
    return outputs


def given(problem: Problem, m: int, outputs: Mapping[str, Tensor]) -> Cotangents:
    """The cotangents that the problem has."""
    return problem.cotangents[m]


@dataclass(frozen=True, eq=False)
class Passes:
    """The whole case through a module: forwards, backwards, and perhaps a step.

    Args:
        problems: of the dp coordinates that share one gradient: one, or all of them.
        watch: the pass in which module boundaries are watched, or None.
        random: whether forwards draw masks: the problem's, or those to be noted.
        stepping: a context in which an optimizer takes its step.
        lift: what tensors of floating point become that the module is given.
    """

    spec: Spec
    case: Case
    problems: Sequence[Problem]
    dtype: torch.dtype
    watch: Pass | None = None
    random: bool = False
    stepping: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    lift: Lift = Tensor.detach

    def __call__(self, module: Any, cotangents: CotangentsOf = given) -> list[Walked]:
        """By problem; what belongs to the parameters is the same in each.

        Args:
            cotangents: of each microbatch, once its outputs are known; by default the problem's.
        """
        params = load(module, self.problems[0].params)
        own = OwnBuffers(module, len(self.problems))
        optimizing = optimizing_of(self.spec, self.case, params, self.dtype)
        if optimizing is None:
            walked = self._stepped(own, params, cotangents)
        else:
            walked = self._trained(own, params, optimizing, cotangents)
        for i, one in enumerate(walked):
            one.values.update(own.left(i, self.problems[0].params, self.spec.training))
        return walked

    def _stepped(
        self, own: OwnBuffers, params: Mapping[str, nn.Parameter], cotangents: CotangentsOf
    ) -> list[Walked]:
        """Backward, and perhaps a step of plain SGD and a forward after it."""
        walked = self._gradients(own, params, 0, cotangents)
        if (self.case.step or walked[0].most) and params:
            sgd_step(params, self.problems[0].terms)
            shared: Values = {(Kind.PARAM, n): p.detach().clone() for n, p in params.items()}
            for problem, one in zip(own.each(self.problems), walked, strict=True):
                one.values.update(shared | self._after_step(own.module, problem, one))
        return walked

    def _trained(
        self,
        buffers: OwnBuffers,
        params: Mapping[str, nn.Parameter],
        optimizing: Optimizing,
        cotangents: CotangentsOf,
    ) -> list[Walked]:
        """Steps of an optimizer, one after the other."""
        assert self.spec.training is not None, "asked for where the spec has one"
        idle = optimizing.idle(params)
        walked = [Walked({}, [], frozenset(), idle=idle)] * len(self.problems)
        given = [params[name] for name in idle]
        for k in range(self.spec.training.steps):
            ask(self.spec, "training's optimizer, its zero_grad(),", optimizing.zero, given)
            own = self._gradients(buffers, params, k, cotangents, optimizing)
            with self.stepping():
                ask(self.spec, "training's optimizer or its schedule", optimizing.step)
            end(optimizing)
            found: Values = {(Kind.PARAM, n): p for n, p in params.items()}
            state = state_of(self.spec, optimizing, params)
            found |= {(Kind.OPTIMIZER_STATE, n): t for n, t in state.items()}
            shared: Values = {
                (kind, str(InPass(n, Pass(0, k)))): t.detach().clone()
                for (kind, n), t in found.items()
            }
            for one in own:
                one.values.update(shared)
            walked = [a.then(b) for a, b in zip(walked, own, strict=True)]
        return walked

    def _gradients(
        self,
        own: OwnBuffers,
        params: Mapping[str, nn.Parameter],
        step: int,
        cotangents: CotangentsOf,
        optimizing: Optimizing | None = None,
    ) -> list[Walked]:
        """The passes of a step, and the gradients that they leave, made whole and clipped. Of a
        loss that is scaled they are noted without that."""
        scale = 1.0 if optimizing is None else optimizing.scale
        each = own.each(self.problems)
        walked = [self._microbatches(own.module, p, step, cotangents, scale) for p in each]
        self._combine(params)
        at = Pass(0, step)
        keys = {
            n: (Kind.PARAM_GRAD, str(InPass(n, at))) for n, p in params.items() if p.requires_grad
        }
        shared: Values = {key: gradient(params[n], scale) for n, key in keys.items()}
        unused = frozenset(key for n, key in keys.items() if params[n].grad is None)
        near = frozenset[int]()
        if optimizing is not None:
            if scale != 1.0 and not overflow.overflows(self.problems[0], step):
                near = overflow.near(params, step, torch_dtype(self.case))
            overflow.put(self.problems[0], params, step)
            optimizing.unscale()
        norm, most = self._clip(params, step)
        near |= overflow.by_norm(norm, step)
        after = Walked(shared | norm, [], unused, most, overflowed=near)
        return [one.then(after) for one in walked]

    def _microbatches(
        self, module: Any, problem: Problem, step: int, cotangents: CotangentsOf, scale: float
    ) -> Walked:
        """Forward and backward of every microbatch; gradients of parameters add up."""
        walked = Walked({}, [], frozenset())
        for m in range(self.case.microbatches):
            at = step * self.case.microbatches + m
            of = partial(cotangents, problem, at)
            walked = walked.then(self._pass(module, problem, at, Pass(m, step), of, scale))
        return walked

    def _pass(
        self,
        module: Any,
        problem: Problem,
        number: int,
        at: Pass,
        cotangents: Callable[[Mapping[str, Tensor]], Cotangents],
        scale: float,
    ) -> Walked:
        """Forward and backward of one microbatch, whose inputs have this number; cotangents are
        this many times as large."""
        if self.case.mode == "inference":
            self._infer(module, problem, number)
        leaves = leaves_of(self.case, problem.inputs[number], self._leaf)
        with self._masking(problem, at) as masks, self._watching(module, at) as seen:
            outputs = forward(self.spec, module, leaves)
            # copies: a later pass, or the step, may write into what this one returned
            values: Values = {_output(n, at): plain(t).clone() for n, t in outputs.items()}
            with masks.aside():
                seeds = cotangents(outputs)
            backward(outputs, seeds, scale, self.lift)
        values |= {(Shelf.BORDER, key): t for key, t in seen.items()}
        trained = {n: leaf for n, leaf in leaves.items() if leaf.requires_grad}
        keys = {n: (Kind.INPUT_GRAD, str(InPass(n, at))) for n in trained}
        values |= {keys[n]: gradient(leaf, scale) for n, leaf in trained.items()}
        unused = frozenset(keys[n] for n, leaf in trained.items() if leaf.grad is None)
        return Walked(values, [seeds], unused, (), masks.of(at), masks.unread)

    def _infer(self, module: Any, problem: Problem, number: int) -> None:
        """A forward whose results nobody needs; it may leave something in the module's buffers."""
        with case_mode.inference(module):
            forward(self.spec, module, leaves_of(self.case, problem.inputs[number], self._leaf))

    def _combine(self, params: Mapping[str, nn.Parameter]) -> None:
        """Over dp: gradients have been added up, and may be to be averaged; tied ones once, and
        always in the same order, so that the noise is the same."""
        if self.spec.dp_gradients != "mean":
            return
        for param in dict.fromkeys(params.values()):
            if param.grad is not None:
                param.grad /= len(self.problems)

    def _clip(self, params: Mapping[str, nn.Parameter], step: int) -> tuple[Values, list[float]]:
        """The norm of all gradients, tied ones once, where the spec asks for it; they are clipped
        to what the problem says, in the first run to a multiple of it."""
        own = [p.grad for p in dict.fromkeys(params.values()) if p.grad is not None]
        if self.spec.norm is None or not own:
            return {}, []
        gradients = list(map(dense, own))
        norm, known = total_norm(gradients, self.spec.norm.order), self.problems[0].most
        most = known[step] if known else float(norm) * self.spec.norm.most_of(self.case.seed + step)
        most = most if math.isfinite(most) else 1.0
        clip(own, norm, most)
        if overflow.overflows(self.problems[0], step):  # of infinity nothing can be said
            return {}, [most]
        name = str(InPass(NORM, Pass(0, step)))
        return {(Kind.GRAD_NORM, name): norm.detach().clone()}, [most]

    def _masking(self, problem: Problem, at: Pass) -> contextlib.AbstractContextManager[Masking]:
        """The masks of a pass: those of the problem, or of a run that draws them."""
        return masking(self.case, problem, at) if self.random else contextlib.nullcontext(NONE)

    @contextlib.contextmanager
    def _watching(self, module: Any, at: Pass) -> Iterator[dict[str, Tensor]]:
        """What crosses the module's boundaries in this pass; nothing where it is not watched."""
        if at != self.watch or not isinstance(module, nn.Module):
            yield {}
            return
        with Watch(module) as watch:
            yield watch.seen

    def _leaf(self, name: str, tensor: Tensor, asked: bool) -> Tensor:
        if not tensor.is_floating_point():
            return tensor.clone()
        return self.lift(tensor.to(self.dtype, copy=True)).requires_grad_(
            asked and name not in self.spec.constants
        )

    def _after_step(self, module: Any, problem: Problem, walked: Walked) -> Values:
        """One more forward, of the first microbatch; its masks join those of the walk."""
        with torch.no_grad():
            leaves = leaves_of(self.case, problem.inputs[0], self._leaf)
            with self._masking(problem, STEP) as masks, self._watching(module, STEP) as seen:
                outputs = forward(self.spec, module, leaves)
            walked.masks.update(masks.of(STEP))
        values = {_output(n, STEP): plain(t).clone() for n, t in outputs.items()}
        return values | {(Shelf.BORDER, key): t for key, t in seen.items()}


def _output(name: str, at: Pass) -> tuple[str, str]:
    """A loss is told apart from other outputs by its name."""
    kind = Kind.LOSS if name.rpartition(".")[2] == "loss" else Kind.OUTPUT
    return kind, str(InPass(name, at))
