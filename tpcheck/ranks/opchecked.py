"""A function's ops of `torch.library`, in a case whose values are right: what opcheck finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from tpcheck.kernels.registered import EVERY, Call, Calls, any_of_user, failures
from tpcheck.protocol.problem import Target
from tpcheck.tensors.ops import is_op
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

#: By how much more than a result of the case one of a compiled op may be off: its upstream
#: gradients are ones. A backward that is not compiled as it is written is off by all of itself.
SLACK = 64.0


def mismatches(
    function: object,
    run: Callable[[Calls], Iterable[Tensor]],
    *,
    rank: int,
    seed: int,
    targets: Iterable[Target],
) -> Iterator[Mismatch]:
    """What its ops are registered as and are not.

    Args:
        run: calls it with fresh inputs, and runs its backward, where its ops are seen; returns what
            both gave.
        seed: of the case: by it a part of the cases has the test that takes long.
        targets: what is expected of the case, with how far rounding moves it.
    """
    if not is_op(function) and not any_of_user():
        return
    calls = Calls()
    results = list(run(calls))
    finite = all(bool(t.isfinite().all()) for t in results if t.is_floating_point())
    moved = max([0.0, *map(_moved, targets)])
    for call in calls.first.values():
        rtol, atol = _tolerances(call, moved)
        slow = seed % EVERY == 0 and finite  # a NaN is equal to none there
        for found in failures(call, compiled=slow, rtol=rtol, atol=atol):
            yield Mismatch(found.op, Kind.CUSTOM_OP, rank, detail=found)


def _moved(target: Target) -> float:
    """By how much rounding may move any element of it."""
    sigma = target.spread.sigma
    finite = sigma[sigma.isfinite()]
    limit = target.spread.elementwise_limit(target.value.numel())
    return float(finite.max()) * limit if finite.numel() else 0.0


def _tolerances(call: Call, moved: float) -> tuple[float, float]:
    """(relative, absolute)."""
    floats = [t.detach() for t in call.tensors if t.is_floating_point()]
    coarsest = max((torch.finfo(t.dtype).eps for t in floats), default=2.0**-52)
    sizes = [float(t.abs().nan_to_num(0.0, 0.0, 0.0).max()) for t in floats if t.numel()]
    return SLACK * coarsest, SLACK * max([moved, *(coarsest * size for size in sizes), 1e-30])
