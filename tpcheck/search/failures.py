"""What kind of failure a case is, and which of two failing cases is the duller one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tpcheck.case import Case
from tpcheck.report import reasons
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind

#: What is not a wrong value: each is a family of its own, and the first that is seen names it.
_FAMILIES = (
    Kind.CRASH,
    Kind.HANG,
    Kind.COLLECTIVE,
    Kind.MEMORY,
    Kind.EXCEPTION,
    Kind.SHARDING,
    Kind.COMMUNICATION_BYTES,
    Kind.SAVED_BYTES,
    Kind.MASK,
    Kind.RACE,
    Kind.DISCIPLINE,
    Kind.CUSTOM_OP,
    Kind.WITNESS,
)


def family(result: CaseResult) -> str:
    """What kind of failure it is; shrinking stays within one."""
    kinds = {mismatch.kind for mismatch in result.causes}
    values = ["values"] if any(kind.is_value for kind in kinds) else []
    return next(iter([*(kind for kind in _FAMILIES if kind in kinds), *values]), "none")


def size(result: CaseResult) -> tuple[Any, ...]:
    """The order in which failing cases are preferred: the dullest first."""
    return size_of(result.case)


def size_of(case: Case) -> tuple[Any, ...]:
    """The same of a case."""
    numbers = [v for v in case.dims.values() if isinstance(v, (int, float))]
    flags = [case.microbatches, case.step, case.memory != "contiguous", case.magnitude != 0]
    flags += [case.family != "normal", case.gradients != "all", case.mode != "train"]
    flags += [case.saved_at != 0]
    return (case.world_size, sum(numbers), sum(map(int, flags)), case.dtype != "float64", case.seed)


def decided(run: Callable[[], CaseResult], first: CaseResult | None = None) -> CaseResult:
    """What `run` comes to, given a second chance where it only met the time limit: that may have
    been a busy machine. What hangs again on fresh ranks has failed; else nothing is decided, and it
    is never a PASS. `first`: what it came to, where it has run once."""
    result = first or run()
    if not result.timed_out:
        return result
    again = run()
    if again.verdict is Verdict.FAIL:
        return again
    return replace(again, unknown=reasons.late_once(again.case))
