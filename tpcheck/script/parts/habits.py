"""What a kernel does besides its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tpcheck.ranks.remembered import remembered
from tpcheck.script.parts.kernel import Inputs, Tensors, backward, fresh
from tpcheck.script.parts.tensors import dense, named
from tpcheck.tensors.reserved import is_sparse


def habits(kernel: Any, inputs: Inputs, upstream: Tensors, overwrites: Sequence[str]) -> list[str]:
    """What a call changes, and whether it does the same again."""
    given, seeds = fresh(inputs), upstream()
    held = {**{n: t for n, t in given.items() if n not in overwrites}, **seeds}
    before = {name: (bytes_of(t).clone(), lies(t)) for name, t in held.items()}
    outputs = named(kernel(*given.values()))
    backward(outputs, seeds)
    found = [
        f"{name}: the call, or its backward, changes {changed} bytes of its memory"
        for name, t in held.items()
        if lies(t) == before[name][1] and (changed := int((bytes_of(t) != before[name][0]).sum()))
    ]
    found += [
        f"{name}: the call, or its backward, leaves it with another shape, strides or memory"
        for name, t in held.items()
        if lies(t) != before[name][1]
    ]
    gradients = gradients_of(given)
    given = fresh(inputs)
    again = named(kernel(*given.values()))
    found += differ("the same call again", outputs, again)
    first = {name: t.detach().clone() for name, t in outputs.items()}
    with torch.no_grad():
        try:
            kernel(*[0.5 - t if t.is_floating_point() else t for t in given.values()])
        except Exception:
            print("a call with other numbers raises, and is left out")
    written = differ("after the next call", first, outputs)
    found += written
    found += met_again(kernel, inputs, upstream, overwrites)
    found += [] if written else differ("after more calls", first, outputs)
    if overwrites:
        return found
    for what in ("backward again", "a second backward of the same call"):
        for t in given.values():
            t.grad = None
        try:
            backward(again, upstream(), retain_graph=True)
        except Exception as error:
            return [*found, f"{what}: raises {type(error).__name__}: {error}"]
        found += differ(what, gradients, gradients_of(given))
    if any(gradient.layout is not torch.strided for gradient in gradients.values()):
        return found  # rows of one that are met twice add up in another order with others
    return found + shared(kernel, inputs, upstream(), gradients)


def met_again(
    kernel: Any, inputs: Inputs, upstream: Tensors, overwrites: Sequence[str]
) -> list[str]:
    """What a call and its backward give of inputs and upstream gradients that have other numbers
    since another one, as parameters have after an optimizer's step, or of others with their memory
    or their `id`, and do not of other tensors with these numbers."""
    own, seeds = fresh(inputs), {f"d {name}": seed for name, seed in upstream().items()}
    reused: list[str] = []
    returned: list[tuple[dict[str, Tensor], dict[str, Tensor]]] = []  # of each call, and copies

    def call(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        leaves = {name: given[name] for name in own}
        outputs = named(kernel(*leaves.values()))
        if overwrites:
            return outputs
        upward = {name.removeprefix("d "): given[name] for name in seeds}
        new = returned_by(leaves, partial(backward, outputs, upward))
        for kept, copies in returned:
            reused.extend([] if reused else differ("after another call's backward", copies, kept))
        beside = {tensor.untyped_storage().data_ptr() for tensor in given.values()}
        plain = {name: one for name, one in new.items() if one.layout is torch.strided}
        mine = {n: g for n, g in plain.items() if g.untyped_storage().data_ptr() not in beside}
        returned.append((mine, {name: one.clone() for name, one in mine.items()}))
        return {**outputs, **gradients_of(leaves)}

    others = {**fresh(inputs), **{f"d {name}": seed for name, seed in upstream().items()}}
    found: list[str] = []
    for right, wrong in remembered(call, {**own, **seeds}, others):
        found += differ("of inputs that were met before", right, wrong)
    return found + reused


def returned_by(leaves: Mapping[str, Tensor], back: Callable[[], Any]) -> dict[str, Tensor]:
    """Gradients as a backward returns them: what is in `grad` may be a copy."""
    found: dict[str, Tensor] = {}
    hooks = []
    for name, leaf in leaves.items():
        leaf.grad = None
        if leaf.requires_grad:
            hooks += [leaf.register_hook(partial(found.__setitem__, f"input_grad {name}"))]
    back()
    for hook in hooks:
        hook.remove()
    return found


def shared(
    kernel: Any, inputs: Inputs, seeds: Mapping[str, Tensor], gradients: Mapping[str, Tensor]
) -> list[str]:
    """What another consumer of the inputs changes, from which zeros come back."""
    given = fresh(inputs)
    own = {id(t): torch.ops.aten.alias(t) for t in given.values() if t.requires_grad}
    try:
        outputs = named(kernel(*[own.get(id(t), t) for t in given.values()]))
        others = {f"other {n}": t * 1.0 for n, t in own.items()}
        zeros = {n: torch.zeros_like(t) for n, t in others.items()}
        backward({**outputs, **others}, {**seeds, **zeros})
    except Exception as error:
        return [f"with another consumer of its inputs: raises {type(error).__name__}: {error}"]
    return differ("with another consumer of the inputs", gradients, gradients_of(given))


def gradients_of(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"input_grad {n}": t.grad.clone() for n, t in given.items() if t.grad is not None}


def differ(what: str, first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> list[str]:
    """The tensors that have other bits; a NaN is like any other."""
    found = []
    for name in first:
        if name not in second or first[name].shape != second[name].shape:
            continue
        one, other = dense(first[name]), dense(second[name])
        count = int(((one != other) & ~((one != one) & (other != other))).sum())
        found += [f"{name}, {what}: {count} of {one.numel()} elements have other bits"] * (
            count > 0
        )
    return found


def lies(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.data_ptr()


def bytes_of(tensor: Tensor) -> Tensor:
    """All of its storage; the elements alone where that is reserved and not used."""
    if is_sparse(tensor):
        own = tensor.detach().clone(memory_format=torch.contiguous_format)
        return own.reshape(-1).view(torch.uint8)
    memory = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return memory.set_(tensor.untyped_storage())
