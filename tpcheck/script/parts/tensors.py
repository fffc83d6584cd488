"""Tensors as they were in the case, and what is wrong with those of the candidate."""

from __future__ import annotations

import base64
import math
import traceback
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tpcheck.tensors.reserved import reserved


def stored(
    dtype: torch.dtype,
    shape: Any,
    strides: Any,
    offset: int,
    storage: Any,
    device: str = "cpu",
    length: int = 0,
) -> Tensor:
    """A tensor over a storage of its own: all numbers of that, or its bytes, packed. With a length
    the storage has so many elements, reserved and not used, and the numbers are the tensor's."""
    if isinstance(storage, str):
        flat = torch.frombuffer(bytearray(zlib.decompress(base64.b85decode(storage))), dtype=dtype)
    else:
        flat = torch.tensor(storage, dtype=dtype)
    if not length:
        return flat.to(device).as_strided(shape, strides, offset)
    far = reserved(dtype, length).as_strided(shape, strides, offset)
    return far.copy_(flat.view(shape)).to(device)


@dataclass
class Expected:
    """A tensor of the case.

    Args:
        kind, name: `output`, `input_grad` and so on, and which.
        value: by the reference in float64; of integers the very ones.
        bound: by how much rounding may move each element; ∞ where nothing can be said.
        norm: by how much it may move the whole: the root of the sum of squared errors.
        gain: how far the projection Σ value · error / σ² may be from zero; 0 where none is.
        limit: how many σ the bound is.
        dtype: that it must have; None where any will do.
        optional: whether it may be missing: the reference has none either.
        largest: beyond which rounding may take a number to ∞: that is as wrong as it is.
    """

    kind: str
    name: str
    value: Tensor
    bound: Tensor
    norm: float
    limit: float
    gain: float = 0.0
    dtype: torch.dtype | None = None
    optional: bool = False
    largest: float = math.inf

    def of(self, part: Callable[[Tensor], Tensor]) -> Expected:
        """What is expected of a part of it."""
        whole = self.value.shape
        value, bound = part(self.value), part(self.bound)
        if value.shape == whole:
            return replace(self, value=value, bound=bound)
        norm = self.norm * _norm(bound) / (_norm(self.bound) or 1.0)
        return replace(self, value=value, bound=bound, norm=norm, gain=0.0)

    def fault(self, actual: Tensor | None) -> str | None:
        """What is wrong with a tensor."""
        if actual is None:
            absent = self.optional or (self.kind.endswith("grad") and not self.value.numel())
            return None if absent else "there is none"
        if actual.shape != self.value.shape:
            return f"has shape {tuple(actual.shape)}, expected {tuple(self.value.shape)}"
        if self.dtype is not None and actual.dtype != self.dtype:
            return f"is {actual.dtype}, expected {self.dtype}"
        return self._off(actual.detach().cpu()) if self.value.numel() else None

    def _off(self, actual: Tensor) -> str | None:
        got, value = actual.double(), self.value.double()
        same = (got == value) | (got.isnan() & value.isnan())
        overflowed = got.isinf() & value.isfinite()
        off = torch.where(overflowed, got.sign() * self.largest, got) - value
        error = off.abs()
        if not (actual.is_floating_point() or self.value.is_floating_point()):
            same, error = actual.long() == self.value, error.clamp_min(1.0)
        error = torch.where(same, 0.0, error)
        wrong = ~(error <= self.bound) & self.bound.isfinite()
        if wrong.any():
            score = torch.where(wrong, (error / self.bound).nan_to_num(math.inf), -1.0)
            at = tuple(int(i) for i in torch.unravel_index(score.argmax(), score.shape))
            return (
                f"{list(at)}: expected {float(value[at]):.9g}, got {float(got[at]):.9g}, off by "
                f"{float(error[at]):.3g}, bound {float(self.bound[at]):.3g} "
                f"({int(wrong.sum())} of {wrong.numel()} elements)"
            )
        norm = _norm(error[self.bound.isfinite()])
        if norm > self.norm:
            return f"each element is within its bound, together off by {norm:.3g} > {self.norm:.3g}"
        weight = (value / (self.bound / self.limit) ** 2).nan_to_num(0.0, 0.0, 0.0)
        shift = abs(float((weight * off).nan_to_num(0.0, 0.0, 0.0).sum()))
        if self.gain and shift > self.gain:
            return f"scaled: Σ value · error / σ² is {shift:.3g}, bound {self.gain:.3g}"
        return None


def _norm(numbers: Tensor) -> float:
    """The root of the sum of their squares, of those that are finite."""
    return float(numbers[numbers.isfinite()].square().sum().sqrt())


def faults(expected: Sequence[Expected], actual: Mapping[tuple[str, str], Any]) -> list[str]:
    """A line for each wrong tensor, in the order in which they are computed."""
    each = [(e, e.fault(actual.get((e.kind, e.name)))) for e in expected]
    return [f"{e.kind} {e.name} {said}" for e, said in each if said is not None]


def named(result: Any, path: str = "") -> dict[str, Tensor]:
    """What a call returns, by the case's names: `output`, `output.0`, keys of a dict."""
    if isinstance(result, Tensor):
        return {path or "output": result}
    if isinstance(result, Mapping):
        parts = list(result.items())
    elif isinstance(result, (tuple, list)):
        path, parts = path or "output", list(enumerate(result))
    elif is_dataclass(result):
        parts = [(f.name, getattr(result, f.name)) for f in fields(result)]
    elif isinstance(result, (bool, int, float)):
        wide = torch.float64 if isinstance(result, float) else None
        return {path or "output": torch.tensor(result, dtype=wide)}
    else:
        return {}
    under = [(f"{path}.{key}" if path else str(key), part) for key, part in parts]
    return {name: t for key, part in under for name, t in named(part, key).items()}


def dense(tensor: Tensor) -> Tensor:
    """A gradient may be sparse."""
    own = tensor.detach()
    if own.is_sparse:  # torch 2.13 writes beyond the result of values that are strided
        indices, values = own._indices(), own._values().contiguous()
        own = torch.sparse_coo_tensor(indices, values, own.shape, check_invariants=False)
    return own if own.layout is torch.strided else own.to_dense()


def leaf(tensor: Tensor) -> Tensor:
    """Floats take a gradient."""
    return tensor.detach().requires_grad_(tensor.is_floating_point())


def ending(show: Callable[[], list[str]], *, raises: bool, tell: bool = True) -> int:
    """The exit code, told: 1 where the fault shows, 0 where it does not, 2 where the candidate does
    not run.

    Args:
        show: a line for each thing that is wrong.
        raises: whether the fault is that the candidate raises.
        tell: whether it is this process that says so.
    """
    try:
        found = show()
    except Exception as error:
        traceback.print_exc()
        lost = type(error).__name__ in ("NeedsTpcheck", "InvalidArgument") or not raises
        print("the candidate does not run" if lost else "WRONG: it raises")
        return 2 if lost else 1
    if tell:
        for said in found[:1]:
            print(f"WRONG: {said}")
        for said in found[1:]:
            print(f"  and  {said}")
        if not found:
            print("the fault does not show")
    return 1 if found else 0
