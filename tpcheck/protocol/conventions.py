"""What the reference's walk (`oracle/passes`) and a rank's (`ranks/run`) do alike: names of
outputs, what a forward leaves behind, the step. That they are two is the point of an oracle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.errors import InvalidArgument
from tpcheck.tensors.names import FIRST, InPass, Pass, buffers_of
from tpcheck.training import Training

#: Of the plain SGD step that part of the cases take: a power of two, so that lr · grad is exact,
#: and large enough that a wrong gradient moves a parameter by more than it rounds.
LEARNING_RATE = 2.0**-4
#: Added to the norm that gradients are divided by, as torch adds it.
CLIP_EPSILON = 1e-6


#: What a forward returns.
WANTED = "a tensor, a tuple or a dict of tensors"


def named_outputs(result: Any, of: str = "forward", wanted: str = WANTED) -> dict[str, Tensor]:
    """A module's result as name → tensor: `output`, `output.0` …, or the keys of a mapping or the
    fields of a dataclass; nested ones by path (`output.1.aux`). Numbers, and arrays of numpy, are
    tensors without a gradient. None, text and objects of other classes are left out.

    Args:
        of: what returned it.
        wanted: what it should return.

    Raises:
        InvalidArgument: it is none of these, or two tensors have one name.
    """
    if _number(result) is None and _members(result) is None and not isinstance(result, Tensor):
        raise InvalidArgument(f"{of} returned a {type(result).__name__}; return {wanted}")
    named: dict[str, Tensor] = {}
    for name, tensor in _flattened(result, ""):
        if name in named:
            raise InvalidArgument(f"{of} returned two tensors that are both called {name!r}")
        named[name] = tensor
    return named


def scheduled_outputs(results: Any, passes: int) -> list[dict[str, Tensor]]:
    """What a check's own schedule returned, each of so many microbatches as `named_outputs` has it.

    Raises:
        InvalidArgument: it is no list of as many, or one of them is not outputs.
    """
    whose = "the check's schedule"
    if not isinstance(results, (list, tuple)) or len(results) != passes:
        given = f"a {type(results).__name__}"
        if isinstance(results, (list, tuple)):
            given += f" of {len(results)}"
        raise InvalidArgument(
            f"{whose} returned {given} for {passes} microbatches; return a list of the outputs of "
            "each, {} on a rank that has none"
        )
    wanted = f"{WANTED}, or {{}} on a rank that has none"
    return [
        named_outputs(one, f"of microbatch {i} {whose}", wanted) for i, one in enumerate(results)
    ]


def _flattened(result: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(result, Tensor):
        yield path or "output", result
    elif (number := _number(result)) is not None:
        yield path or "output", number
    elif (members := _members(result)) is not None:
        keyed = path or ("" if _is_keyed(result) else "output")
        for key, value in members:
            yield from _flattened(value, f"{keyed}.{key}" if keyed else str(key))


def _number(result: Any) -> Tensor | None:
    """A number of Python, or what numpy holds, as a tensor."""
    if isinstance(result, (bool, int, float, complex)):
        wide = torch.float64 if isinstance(result, float) else None
        return torch.tensor(result, dtype=wide)
    if type(result).__module__ == "numpy" and hasattr(result, "__array__"):
        return torch.as_tensor(result)
    return None


def _members(result: Any) -> Iterable[tuple[Any, Any]] | None:
    """What a result consists of; None where it is no such thing."""
    if isinstance(result, Mapping):
        return result.items()
    if isinstance(result, (tuple, list)):
        return enumerate(result)
    if is_dataclass(result) and not isinstance(result, type):
        return [(f.name, getattr(result, f.name)) for f in fields(result)]
    return None


def _is_keyed(result: Any) -> bool:
    return not isinstance(result, (tuple, list))


def differentiable(outputs: Mapping[str, Tensor]) -> list[str]:
    """The outputs that take a cotangent."""
    return [name for name, t in outputs.items() if t.is_floating_point()]


def state_buffers(module: Any, training: Training | None) -> list[tuple[InPass, Tensor]]:
    """A module's buffers by name, in the last step: what forwards have left behind by then, so that
    fewer steps, where a case is posed of fewer, are not asked for them."""
    if not isinstance(module, nn.Module):
        return []
    at = FIRST if training is None else Pass(step=training.steps - 1)
    return [(InPass(name, at), buffer) for name, buffer in buffers_of(module).items()]


def total_norm(gradients: Iterable[Tensor], order: float) -> Tensor:
    """The p-norm [] of all gradients as one vector."""
    each = [torch.linalg.vector_norm(grad, order) for grad in gradients]
    return torch.linalg.vector_norm(torch.stack(each), order)


def clip(gradients: Iterable[Tensor], norm: Tensor, most: float) -> None:
    """g ← g · min(1, most / (norm + ε)), in place, as `torch.nn.utils.clip_grads_with_norm_`."""
    share = (most / (norm + CLIP_EPSILON)).clamp(max=1.0)
    for grad in gradients:
        grad.mul_(share)


def sgd_step(params: Mapping[str, Tensor], terms: Collection[str]) -> None:
    """p ← p − lr · grad, in place, where there is a gradient; tied ones once.

    Args:
        terms: those whose gradient is still to be summed, by any name of theirs: they stay.
    """
    stay = {id(params[name]) for name in terms if name in params}
    with torch.no_grad():
        for p in {id(p): p for p in params.values()}.values():
            if p.grad is not None and id(p) not in stay:
                p.add_(p.grad, alpha=-LEARNING_RATE)
