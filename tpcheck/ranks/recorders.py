"""What ranks that are threads tell of their collectives: each has a recorder of its own."""

from __future__ import annotations

import threading
from typing import Any

import torch.distributed as dist
from torch import Tensor

from tpcheck.comms.operands import exchanged_by
from tpcheck.comms.reduce_ops import name_of
from tpcheck.comms.trace import Recorder

_recorders = threading.local()


def set_recorder(recorder: Recorder | None) -> None:
    """The recorder that this thread's group reports to."""
    _recorders.value = recorder


def add_up(tensor: Tensor, group: Any = None) -> None:
    """A sum over a group, in place, that is tpcheck's own and not the candidate's. Ranks that are
    processes would not see it anyway, since no recorder is entered."""
    recorder = getattr(_recorders, "value", None)
    set_recorder(None)
    try:
        dist.all_reduce(tensor, group=group)
    finally:
        set_recorder(recorder)


def record(op: str, group: Any, tensors: Any, args: Any, opts: Any = None) -> None:
    recorder = getattr(_recorders, "value", None)
    if recorder is None:
        return
    reduce_op = name_of(opts.reduceOp) if hasattr(opts, "reduceOp") else None
    ranks = tuple(dist.get_process_group_ranks(group))
    # the threaded group meets in every collective, asynchronous or not
    name = str(group.group_name)
    exchanged = exchanged_by(op, args, len(ranks))
    flat = list(_flat(tensors))
    recorder.record(op, flat, ranks, reduce_op, name, waits=True, exchanged=exchanged)


def _flat(tensors: Any) -> Any:
    for tensor in tensors if isinstance(tensors, (list, tuple)) else [tensors]:
        if isinstance(tensor, Tensor):
            yield tensor
        elif isinstance(tensor, (list, tuple)):
            yield from _flat(tensor)
