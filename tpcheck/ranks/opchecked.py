"""A function's ops of `torch.library`, in a case whose values are right: what opcheck finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from torch import Tensor

from tpcheck.kernels.registered import EVERY, Calls, any_of_user, failures
from tpcheck.protocol.problem import Target
from tpcheck.tensors.ops import is_op, within
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind


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
    if not is_op(within(function)) and not any_of_user():
        return
    calls = Calls()
    results = list(run(calls))
    finite = all(bool(t.isfinite().all()) for t in results if t.is_floating_point())
    moved = moved_by_rounding(targets)
    for call in calls.first.values():
        slow = seed % EVERY == 0 and finite  # a NaN is equal to none there
        for found in failures(call, compiled=slow, moved=moved):
            yield Mismatch(found.op, Kind.CUSTOM_OP, rank, detail=found)


def moved_by_rounding(targets: Iterable[Target]) -> float:
    """By how much rounding may move any element of a case."""
    most = 0.0
    for target in targets:
        finite = target.spread.sigma[target.spread.sigma.isfinite()]
        if finite.numel():
            limit = target.spread.elementwise_limit(target.value.numel())
            most = max(most, float(finite.max()) * limit)
    return most
