"""One call of a kernel and its backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tpcheck.script.parts.tensors import Expected, faults, named

Tensors = Callable[[], dict[str, Tensor]]
#: A name in place of a tensor: the same one as of that name.
Inputs = Callable[[], Mapping[str, Any]]


def call(
    kernel: Any,
    given: dict[str, Tensor],
    seeds: dict[str, Tensor],
    expected: Sequence[Expected],
) -> list[str]:
    """What is wrong with the outputs, and with the inputs' gradients."""
    outputs = named(kernel(*given.values()))
    of_outputs = [e for e in expected if e.kind != "input_grad"]
    found = faults(of_outputs, {(e.kind, e.name): outputs.get(e.name) for e in of_outputs})
    if any(e.name not in outputs or outputs[e.name].shape != e.value.shape for e in of_outputs):
        return found
    backward(outputs, seeds)
    gradients = {("input_grad", name): t.grad for name, t in given.items()}
    return found + faults([e for e in expected if e.kind == "input_grad"], gradients)


def backward(outputs: dict[str, Tensor], seeds: dict[str, Tensor], **more: Any) -> None:
    """From all outputs that have an upstream gradient."""
    roots = [name for name in seeds if name in outputs and outputs[name].requires_grad]
    if roots:
        torch.autograd.backward([outputs[n] for n in roots], [seeds[n] for n in roots], **more)


def fresh(inputs: Inputs) -> dict[str, Tensor]:
    """Leaves that no call has seen."""
    made = inputs()
    return {name: made[own] if isinstance(own, str) else own for name, own in made.items()}
