"""The reduce op of a collective: not an argument of c10d's direct operators, so that it is noted on
the way in, where Python calls the process group.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch.distributed as dist

from tpcheck.comms.operands import REDUCE_OPS

REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
_pending = threading.local()  # from the call of the process group to the operator that it runs


def reduce_op_of(op: str, args: tuple[Any, ...]) -> str | None:
    """The reduce op of an operator with these arguments, or None where it has none."""
    noted = getattr(_pending, "reduce_op", None)
    _pending.reduce_op = None
    named = next((a for a in args if isinstance(a, str) and a in REDUCE_OPS), None)
    return (named or noted) if op in REDUCING else None


def name_of(reduce_op: Any) -> str:
    """`ReduceOp.SUM` → `sum`."""
    return str(getattr(reduce_op, "op", reduce_op)).rsplit(".", 1)[-1].lower()


def watch_reduce_ops() -> None:
    """Wraps the process group's reducing methods, once per process, to note each reduce op."""
    for method in (
        "allreduce",
        "allreduce_coalesced",
        "reduce",
        "reduce_scatter",
        "_reduce_scatter_base",
        "reduce_scatter_single",
        "reduce_scatter_tensor_coalesced",
    ):
        original = getattr(dist.ProcessGroup, method, None)
        if original is None or hasattr(original, "__wrapped__"):
            continue
        setattr(dist.ProcessGroup, method, _noting(original))


def _noting(original: Any) -> Any:
    @functools.wraps(original)
    def noted(*args: Any, **kwargs: Any) -> Any:
        for arg in (*args, *kwargs.values()):
            if hasattr(arg, "reduceOp"):
                _pending.reduce_op = name_of(arg.reduceOp)
            elif isinstance(arg, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
                _pending.reduce_op = name_of(arg)
        return original(*args, **kwargs)

    return noted
