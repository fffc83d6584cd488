"""Hypotheses that only the trace of collectives, beside the budget, says something of."""

from __future__ import annotations

from collections.abc import Mapping

from tpcheck.causes.traced import CollectiveLeftOut, SummedInPart
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.event import SUMS
from tpcheck.oracle.reference import ask
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Kind, Phase

_GATHER = "all_gather"


def missing_collective(facts: Facts, local: Local) -> Diagnosis | None:
    """The trace has no sum, or no gather, where the budget has one."""
    if facts.spec is None or facts.spec.budget is None or facts.case.tp < 2:
        return None
    phase = Phase.FORWARD if local.kind.is_output else Phase.BACKWARD
    budget = ask(facts.spec, "budget", facts.spec.budget, facts.case)
    volumes = budget.forward if phase is Phase.FORWARD else budget.backward
    due = {op for op, n in (volumes or {}).items() if n}
    ran = {e.op for rank in facts.result.trace for e in rank if e.phase == phase}
    lacking = _lacking(due, ran, phase)
    if not lacking or (lacking == {_GATHER} and not _gradients_lack(facts)):
        return _summed_in_part(facts, local, phase, volumes or {})
    of_parameter = local.kind is Kind.PARAM_GRAD
    code = Code.PARTIAL_NOT_REDUCED if of_parameter else Code.MISSING_ALL_REDUCE
    what = (tuple(sorted(due)), tuple(sorted(ran)), tuple(sorted(lacking)))
    return Diagnosis(code, CollectiveLeftOut(local.subject, phase, *what))


def _summed_in_part(
    facts: Facts, local: Local, phase: Phase, volumes: Mapping[str, int]
) -> Diagnosis | None:
    """The trace sums fewer numbers than the tensor has, where the budget sums as many."""
    whole, passes = local.target.value.numel(), facts.case.microbatches
    due = max((n for op, n in volumes.items() if op in SUMS), default=0)
    summed = [
        sum(e.elements for e in rank if e.op in SUMS and e.phase == phase)
        for rank in facts.result.trace
    ]
    ran = min(summed, default=0) // passes
    if local.kind not in (Kind.OUTPUT, Kind.INPUT_GRAD) or not 0 < ran < whole <= due:
        return None
    return Diagnosis(Code.MISSING_ALL_REDUCE, SummedInPart(local.subject, phase, whole, ran))


def _lacking(due: set[str], ran: set[str], phase: Phase) -> set[str]:
    """The ops of which one should have run: those that sum or, in backward, the gather."""
    if due & SUMS and not ran & SUMS:
        return due & SUMS
    return {_GATHER} & (due - ran) if phase is Phase.BACKWARD else set()


def _gradients_lack(facts: Facts) -> bool:
    """Whether a gradient of a parameter is wrong, too, as one is that was computed from a part of
    the rows; a candidate may well keep what it gathered in forward."""
    checked = any(t.kind is Kind.PARAM_GRAD for p in facts.posed.problems for t in p.targets)
    wrong = any(m.kind is Kind.PARAM_GRAD for m in facts.result.mismatches)
    return wrong or not checked
