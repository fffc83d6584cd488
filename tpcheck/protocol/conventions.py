"""What the reference's walk (`oracle/passes`) and a rank's (`ranks/run`) do alike: names of
outputs, what a forward leaves behind, the step. That they are two is the point of an oracle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.errors import InvalidArgument
from tpcheck.tensors.names import buffers_of

#: Of the plain SGD step that part of the cases take: a power of two, so that lr · grad is exact,
#: and large enough that a wrong gradient moves a parameter by more than it rounds.
LEARNING_RATE = 2.0**-4


def named_outputs(result: Any) -> dict[str, Tensor]:
    """A module's result as name → tensor: `output`, `output.0` …, or the keys of a mapping;
    nested ones by path (`output.1.aux`). What is not a tensor is left out."""
    if isinstance(result, Tensor):
        return {"output": result}
    if isinstance(result, (Mapping, tuple, list)):
        return dict(_flattened(result, "" if isinstance(result, Mapping) else "output"))
    raise InvalidArgument(
        f"forward returned a {type(result).__name__}; return a tensor, a tuple or a dict of tensors"
    )


def _flattened(result: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(result, Tensor):
        yield path, result
    elif isinstance(result, (Mapping, tuple, list)):
        pairs = result.items() if isinstance(result, Mapping) else enumerate(result)
        for key, value in pairs:
            yield from _flattened(value, f"{path}.{key}" if path else str(key))


def differentiable(outputs: Mapping[str, Tensor]) -> list[str]:
    """The outputs that take a cotangent."""
    return [name for name, t in outputs.items() if t.is_floating_point()]


def float_buffers(module: Any) -> list[tuple[str, Tensor]]:
    """A module's floating-point buffers by name: what a forward may leave behind."""
    if not isinstance(module, nn.Module):
        return []
    return [(n, b) for n, b in buffers_of(module).items() if b.is_floating_point()]


def sgd_step(params: Iterable[Tensor]) -> None:
    """p ← p − lr · grad, in place, where there is a gradient; tied ones once."""
    with torch.no_grad():
        for p in {id(p): p for p in params}.values():
            if p.grad is not None:
                p.add_(p.grad, alpha=-LEARNING_RATE)
