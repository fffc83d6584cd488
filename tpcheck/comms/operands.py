"""What the arguments of a c10d operator say: its group, its tensors, how much is sent to whom."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# Elements that a rank sends to, and receives from, each rank of the group, in the group's order.
Exchanged = tuple[tuple[int, ...], tuple[int, ...]]
REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
# From these no rank returns before every rank of the group has entered, unless asynchronous or of
# empty tensors: each needs something of all others. (The source of a broadcast may go ahead. From
# an all-to-all a rank returns when it has what it is sent.)
_MEETING = {"all_reduce", "all_gather", "reduce_scatter", "barrier"}


def written(op: str, tensors: list[Tensor]) -> list[Tensor]:
    """The arguments that the collective writes into; functional collectives write into none."""
    if op in ("all_reduce", "broadcast", "recv"):
        return tensors
    if op == "all_gather":
        return tensors[:-1]
    return tensors[:1] if op == "reduce_scatter" and len(tensors) > 1 else []


def full_elements(op: str, tensors: list[Tensor], degree: int) -> int:
    """Elements of the full tensor. Arguments come as (outputs, inputs); functional collectives
    show their input alone."""
    sizes = [t.numel() for t in tensors]
    if op == "all_gather":
        return sum(sizes[:-1]) if len(sizes) > 1 else degree * sum(sizes)
    if op == "reduce_scatter" and len(sizes) > 1:
        return sum(sizes[1:])
    return sum(sizes) if op == "all_reduce" else max(sizes, default=0)


def tensors_in(args: Iterable[Any]) -> Iterable[Tensor]:
    """The tensors among the arguments, those in lists included, in order."""
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from tensors_in(arg)


def exchanged_by(op: str, args: Sequence[Any], degree: int) -> Exchanged | None:
    """What an all-to-all exchanges, from its arguments: (outputs, inputs) as lists of tensors, or
    (output, input, output splits, input splits), or, functional, (input, output splits, input
    splits). None for other collectives, and for arguments that torch will refuse."""
    if op != "all_to_all":
        return None
    tensors = [a for a in args if isinstance(a, Tensor)]
    received, sent = [a for a in args if isinstance(a, (list, tuple))][:2]
    if not tensors:
        both = tuple(t.numel() for t in sent), tuple(t.numel() for t in received)
    else:
        both = _parts(tensors[-1], sent, degree), _parts(tensors[0], received, degree)
    return both if all(len(parts) == degree for parts in both) else None


def _parts(tensor: Tensor, rows: Sequence[int], degree: int) -> tuple[int, ...]:
    """Elements of each part, of which `rows` says how many rows it has; equal ones where empty."""
    rows = rows or [len(tensor) // degree if tensor.ndim else 0] * degree
    return tuple(int(n) * math.prod(tensor.shape[1:]) for n in rows)


def awaited(
    op: str, tensors: list[Tensor], group: tuple[int, ...], exchanged: Exchanged | None
) -> tuple[int, ...]:
    """The members without which a rank can't return from a synchronous collective."""
    if exchanged is not None:
        return tuple(rank for rank, n in zip(group, exchanged[1], strict=True) if n)
    meets = op == "barrier" or (op in _MEETING and all(t.numel() for t in tensors))
    return group if meets else ()


def group_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[int, ...], str]:
    """The ranks of the group that an operator is given, and the group's name."""
    group: Any = None
    for arg in reversed((*args, *kwargs.values())):
        if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type()):
            group = dist.ProcessGroup.unbox(arg)
        elif group is None and isinstance(arg, str) and arg not in REDUCE_OPS:
            group = dist.distributed_c10d._resolve_process_group(arg)  # type: ignore[attr-defined,arg-type]
    if group is None:
        return (), ""
    return tuple(dist.get_process_group_ranks(group)), str(group.group_name)
