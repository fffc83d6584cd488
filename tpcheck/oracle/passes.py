"""A case walked through a module: forwards, backwards of every microbatch, perhaps a step.

`Passes` is the reference's walk, over one module and the data of all its dp coordinates; what it
names and how it steps are the ranks' too (`protocol/conventions`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.forms import check_form
from tpcheck.oracle.limit import one_process
from tpcheck.protocol.conventions import (
    clip,
    differentiable,
    named_outputs,
    sgd_step,
    state_buffers,
    total_norm,
)
from tpcheck.protocol.problem import Problem, Values
from tpcheck.spec import Spec
from tpcheck.tensors.boundaries import Watch
from tpcheck.tensors.forms import dense, plain
from tpcheck.tensors.leaves import leaves as leaves_of
from tpcheck.tensors.names import NORM, STEP, InPass, Pass, Shelf, check_names, tensors_of
from tpcheck.vocabulary import Kind

Cotangents = dict[str, Tensor]  # output → cotangent
#: (problem, microbatch, outputs) → the cotangents of its backward
CotangentsOf = Callable[[Problem, int, Mapping[str, Tensor]], Cotangents]


def forward(spec: Spec, module: Any, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One forward of the reference, as the spec says."""
    with one_process():
        result = spec.forward(module, inputs) if spec.forward else module(*inputs.values())
    outputs = named_outputs(result)
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


@dataclass(frozen=True)
class Walked:
    """What a module gave on the data of one dp coordinate.

    Args:
        values: every output, gradient, parameter after the step; boundaries of the watched pass.
        cotangents: those that its backwards started from, by microbatch.
        unused: gradients that are None, since nothing depends on the tensor.
        most: what the gradients' norm was clipped to.
    """

    values: Values
    cotangents: list[Cotangents]
    unused: frozenset[tuple[str, str]]
    most: float | None = None


@dataclass(frozen=True, eq=False)
class Passes:
    """The whole case through a module: forwards, backwards, and perhaps a step.

    Args:
        problems: of the dp coordinates that share one gradient: one, or all of them.
        watch: the pass in which module boundaries are watched, or None.
    """

    spec: Spec
    case: Case
    problems: Sequence[Problem]
    dtype: torch.dtype
    watch: Pass | None = None

    def __call__(self, module: Any, cotangents: CotangentsOf = given) -> list[Walked]:
        """By problem; what belongs to the parameters is the same in each.

        Args:
            cotangents: of each microbatch, once its outputs are known; by default the problem's.
        """
        params = _load(module, self.problems[0].params)
        walked = [self._microbatches(module, problem, cotangents) for problem in self.problems]
        self._combine(params)
        trained = {n: p for n, p in params.items() if p.requires_grad}
        shared: Values = {(Kind.PARAM_GRAD, n): _gradient(p) for n, p in trained.items()}
        unused = {(Kind.PARAM_GRAD, n) for n, p in trained.items() if p.grad is None}
        own: list[Values] = [{} for _ in self.problems]
        norm, most = self._clip(params)
        shared |= norm
        if (self.case.step or most is not None) and params:
            sgd_step(params.values())
            shared |= {(Kind.PARAM, n): p.detach().clone() for n, p in params.items()}
            own = [self._after_step(module, problem) for problem in self.problems]
        if len(self.problems) == 1:  # of several, each would go on where the last one ended
            own[0] |= {(Kind.PARAM, n): b.detach().clone() for n, b in state_buffers(module)}
        return [
            Walked(one.values | shared | more, one.cotangents, one.unused | unused, most)
            for one, more in zip(walked, own, strict=True)
        ]

    def _microbatches(self, module: Any, problem: Problem, cotangents: CotangentsOf) -> Walked:
        """Forward and backward of every microbatch; gradients of parameters add up."""
        each = [
            self._pass(module, inputs, Pass(m), partial(cotangents, problem, m))
            for m, inputs in enumerate(problem.inputs)
        ]
        values = {key: tensor for one in each for key, tensor in one.values.items()}
        seeds = [seed for one in each for seed in one.cotangents]
        return Walked(values, seeds, frozenset().union(*(one.unused for one in each)))

    def _pass(
        self,
        module: Any,
        inputs: Mapping[str, Tensor],
        at: Pass,
        cotangents: Callable[[Mapping[str, Tensor]], Cotangents],
    ) -> Walked:
        """Forward and backward of one microbatch."""
        leaves = leaves_of(self.case, inputs, self._leaf)
        with self._watching(module, at) as seen:
            outputs = forward(self.spec, module, leaves)
            # copies: a later pass, or the step, may write into what this one returned
            values: Values = {_output(n, at): plain(t).clone() for n, t in outputs.items()}
            seeds = cotangents(outputs)
            _backward(outputs, seeds)
        values |= {(Shelf.BORDER, key): t for key, t in seen.items()}
        trained = {n: leaf for n, leaf in leaves.items() if leaf.requires_grad}
        keys = {n: (Kind.INPUT_GRAD, str(InPass(n, at))) for n in trained}
        values |= {keys[n]: _gradient(leaf) for n, leaf in trained.items()}
        unused = frozenset(keys[n] for n, leaf in trained.items() if leaf.grad is None)
        return Walked(values, [seeds], unused)

    def _combine(self, params: Mapping[str, nn.Parameter]) -> None:
        """Over dp: gradients have been added up, and may be to be averaged; tied ones once, and
        always in the same order, so that the noise is the same."""
        if self.spec.dp_gradients != "mean":
            return
        for param in dict.fromkeys(params.values()):
            if param.grad is not None:
                param.grad /= len(self.problems)

    def _clip(self, params: Mapping[str, nn.Parameter]) -> tuple[Values, float | None]:
        """The norm of all gradients, tied ones once, where the spec asks for it; they are clipped
        to what the problem says, in the first run to a multiple of it."""
        own = [p.grad for p in dict.fromkeys(params.values()) if p.grad is not None]
        if self.spec.norm is None or not own:
            return {}, None
        gradients = list(map(dense, own))
        norm, most = total_norm(gradients, self.spec.norm.order), self.problems[0].most
        if most is None:
            most = float(norm) * self.spec.norm.most_of(self.case.seed)
        clip(own, norm, most)
        return {(Kind.GRAD_NORM, NORM): norm.detach().clone()}, most

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
        return tensor.to(self.dtype, copy=True).requires_grad_(asked)

    def _after_step(self, module: Any, problem: Problem) -> Values:
        """One more forward, of the first microbatch."""
        with torch.no_grad():
            leaves = leaves_of(self.case, problem.inputs[0], self._leaf)
            with self._watching(module, STEP) as seen:
                outputs = forward(self.spec, module, leaves)
        values = {_output(n, STEP): plain(t).clone() for n, t in outputs.items()}
        return values | {(Shelf.BORDER, key): t for key, t in seen.items()}


def _output(name: str, at: Pass) -> tuple[str, str]:
    """A loss is told apart from other outputs by its name."""
    kind = Kind.LOSS if name.rpartition(".")[2] == "loss" else Kind.OUTPUT
    return kind, str(InPass(name, at))


def _backward(outputs: Mapping[str, Tensor], cotangents: Cotangents) -> None:
    """From all outputs together that depend on something that takes a gradient."""
    names = [n for n in differentiable(outputs) if n in cotangents and outputs[n].requires_grad]
    # copies: a backward may write into what it is given, and the ranks are given the same
    seeds = [cotangents[n].to(outputs[n].dtype, copy=True) for n in names]
    if names:
        torch.autograd.backward([outputs[n] for n in names], seeds)


def _gradient(tensor: Tensor) -> Tensor:
    """The gradient; zero where the reference does not depend on the tensor at all."""
    return torch.zeros_like(tensor) if tensor.grad is None else dense(tensor.grad).detach().clone()


def _load(module: Any, params: Mapping[str, Tensor]) -> dict[str, nn.Parameter]:
    """Copies the drawn state into a module; returns its parameters by name, tied ones under each
    of theirs."""
    if not isinstance(module, nn.Module):
        return {}
    with torch.no_grad():
        for name, tensor in tensors_of(module).items():
            if name in params:
                tensor.copy_(params[name])
            tensor.grad = None
    return dict(module.named_parameters(remove_duplicate=False))
