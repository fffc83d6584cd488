"""A case walked through a module: forwards, backwards of every microbatch, perhaps a step.

`Passes` is the reference's walk, over one module and the data of all its dp coordinates; what it
names and how it steps are the ranks' too (`rank`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.bounds import integers
from tpcheck.case import Case
from tpcheck.protocol.conventions import (
    at,
    differentiable,
    float_buffers,
    named_outputs,
    output_kind,
    sgd_step,
)
from tpcheck.protocol.problem import Problem, Values
from tpcheck.spec import Spec
from tpcheck.tensors import draw as drawing
from tpcheck.tensors.boundaries import Watch
from tpcheck.tensors.draw import Draw, torch_dtype
from tpcheck.tensors.names import tensors_of
from tpcheck.tensors.strides import repeat_first_row


def forward(spec: Spec, module: Any, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One forward as the spec says, reference and candidate alike."""
    result = spec.forward(module, inputs) if spec.forward else module(*inputs.values())
    return named_outputs(result)


class Passes:
    """The whole case through a module: forwards, backwards, and perhaps a step.

    Args:
        problems: of the dp coordinates that share one gradient: one, or all of them.
        watch: the pass (a microbatch, or `step`) in which module borders are watched, or None.
    """

    def __init__(
        self,
        spec: Spec,
        case: Case,
        problems: list[Problem],
        dtype: torch.dtype,
        watch: int | str | None = None,
    ) -> None:
        self.spec, self.case, self.problems, self.dtype = spec, case, problems, dtype
        self.watch = watch
        self.unused: set[tuple[str, str]] = set()

    def __call__(self, module: Any) -> list[Values]:
        """Values by problem; what belongs to the parameters is the same in each."""
        params = _load(module, self.problems[0].params)
        values = [self._passes(module, problem) for problem in self.problems]
        grads: Values = {}
        if self.spec.dp_gradients == "mean":
            for param in set(params.values()):  # tied ones once
                if param.grad is not None:
                    param.grad /= len(self.problems)
        for name, param in params.items():
            if param.requires_grad:
                grads["param_grad", name] = _gradient(param)
                self.unused |= {("param_grad", name)} if param.grad is None else set()
        values = [own | grads for own in values]
        if self.case.step and params:
            sgd_step(params.values())
            stepped: Values = {("param", n): p.detach().clone() for n, p in params.items()}
            after = [self._after_step(module, problem) for problem in self.problems]
            values = [own | stepped | more for own, more in zip(values, after, strict=True)]
        if len(self.problems) == 1:  # of several, each would go on where the last one ended
            values[0] |= {("param", n): b.detach().clone() for n, b in float_buffers(module)}
        return values

    def _passes(self, module: Any, problem: Problem) -> Values:
        """Forward and backward of every microbatch; gradients of parameters add up."""
        values: Values = {}
        for m, inputs in enumerate(problem.inputs):
            leaves = {name: self._leaf(t) for name, t in inputs.items()}
            with self._watching(module, m) as seen:
                outputs = forward(self.spec, module, leaves)
                values |= {(output_kind(k), at(k, m)): t.detach() for k, t in outputs.items()}
                names = [n for n in differentiable(outputs) if outputs[n].requires_grad]
                if m == len(problem.cotangents):
                    problem.cotangents.append(self._draw_cotangents(problem, outputs, m))
                seeds = [problem.cotangents[m][n].to(outputs[n].dtype) for n in names]
                if names:
                    torch.autograd.backward([outputs[n] for n in names], seeds)
            values |= {("border", key): t for key, t in seen.items()}
            for name, leaf in leaves.items():
                if leaf.requires_grad:
                    values["input_grad", at(name, m)] = _gradient(leaf)
                    self.unused |= {("input_grad", at(name, m))} if leaf.grad is None else set()
        return values

    @contextlib.contextmanager
    def _watching(self, module: Any, m: int | str) -> Iterator[dict[str, Tensor]]:
        """What crosses the module's borders in this pass; nothing where it is not watched."""
        if m != self.watch or not isinstance(module, nn.Module):
            yield {}
            return
        with Watch(module) as watch:
            yield watch.seen

    def _leaf(self, tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor.clone()
        return tensor.to(self.dtype, copy=True).requires_grad_()

    def _draw_cotangents(
        self, problem: Problem, outputs: Mapping[str, Tensor], m: int
    ) -> dict[str, Tensor]:
        out = {}
        for name in differentiable(outputs):
            draw = Draw(self.case, "cotangent", problem.d, m)
            full = drawing.cotangent(draw, name, outputs[name])
            full = torch.ones_like(full) if problem.ones else full
            full = integers.integers(draw, name, full) if self.case.integers else full
            if self.case.memory == "expanded":
                full = repeat_first_row(full)
            out[name] = full.to(torch_dtype(self.case))
        return out

    def _after_step(self, module: Any, problem: Problem) -> Values:
        with torch.no_grad():
            leaves = {n: self._leaf(t) for n, t in problem.inputs[0].items()}
            with self._watching(module, "step") as seen:
                outputs = forward(self.spec, module, leaves)
        values = {(output_kind(k), at(k, "step")): t for k, t in outputs.items()}
        return values | {("border", key): t for key, t in seen.items()}


def _gradient(tensor: Tensor) -> Tensor:
    """The gradient; zero where the reference does not depend on the tensor at all."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.detach().clone()


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
