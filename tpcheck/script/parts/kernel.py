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


def calls(
    kernel: Any,
    passes: Sequence[tuple[dict[str, Tensor], dict[str, Tensor]]],
    expected: Sequence[Expected],
    *,
    last_first: bool = False,
) -> list[str]:
    """What is wrong with the outputs, and with the inputs' gradients, of calls that all come before
    their backwards; and what one of them changes of what another has returned.

    Args:
        passes: of each call its inputs and upstream gradients.
        expected: of the second call, as `name@1`.
        last_first: whether the last call's backward is the first one.
    """
    found: list[str] = []
    outputs: list[dict[str, Tensor]] = []
    for m, (given, _) in enumerate(passes):
        before = [copies(one) for one in outputs]
        outputs.append(named(kernel(*given.values())))
        found += changed(before, outputs, "the next call")
        own = [e for e in expected if e.kind != "input_grad" and of_pass(e.name)[1] == m]
        made = {e.name: outputs[m].get(of_pass(e.name)[0]) for e in own}
        found += faults(own, {(e.kind, e.name): made[e.name] for e in own})
        shapes = [None if (t := made[e.name]) is None else t.shape for e in own]
        if shapes != [e.value.shape for e in own]:
            return found
    order = list(range(len(passes)))
    for m in order[::-1] if last_first else order:
        before = [copies(gradients(one)) for one, _ in passes]
        backward(outputs[m], passes[m][1])
        before[m], now = {}, [gradients(one) for one, _ in passes]
        found += changed(before, now, "another call's backward")
    made = {
        name if m == 0 else f"{name}@{m}": t.grad
        for m, (given, _) in enumerate(passes)
        for name, t in given.items()
    }
    wanted = [e for e in expected if e.kind == "input_grad"]
    return found + faults(wanted, {("input_grad", name): t for name, t in made.items()})


def of_pass(name: str) -> tuple[str, int]:
    """A tensor's name, and the call that it is of: `x@1` is of the second."""
    base, at, number = name.rpartition("@")
    return (base, int(number)) if at and number.isdecimal() else (name, 0)


def gradients(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.grad for name, t in given.items() if t.grad is not None}


def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in tensors.items()}


def changed(
    before: Sequence[Mapping[str, Tensor]], now: Sequence[Mapping[str, Tensor]], by: str
) -> list[str]:
    """What has other bits; a NaN is like any other."""
    found = []
    for old, new in zip(before, now, strict=False):
        for name, one in old.items():
            other = new[name].detach()
            if count := int(((one != other) & ~((one != one) & (other != other))).sum()):
                found.append(f"{name}: {by} changes {count} elements of what was returned")
    return found


def backward(outputs: dict[str, Tensor], seeds: dict[str, Tensor], **more: Any) -> None:
    """From all outputs that have an upstream gradient."""
    roots = [name for name in seeds if name in outputs and outputs[name].requires_grad]
    if roots:
        torch.autograd.backward([outputs[n] for n in roots], [seeds[n] for n in roots], **more)


def fresh(inputs: Inputs) -> dict[str, Tensor]:
    """Leaves that no call has seen."""
    made = inputs()
    return {name: made[own] if isinstance(own, str) else own for name, own in made.items()}
