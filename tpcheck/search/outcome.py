"""What the cases of a check come to, where none of them is a counterexample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tpcheck.case import Case
from tpcheck.evidence.judged import Tensors, over
from tpcheck.report import reasons
from tpcheck.search.hunt import Hunt
from tpcheck.search.trials import Trials
from tpcheck.tensors.masks import TELLING
from tpcheck.verdict import CaseResult, LeftBehind, Verdict


def undecided(
    trials: Trials, hunt: Hunt, ran: Sequence[CaseResult], judged: Tensors
) -> tuple[Verdict, str | None]:
    """UNKNOWN and why, or PASS.

    Args:
        ran: the cases that count.
        judged: how much of each tensor was judged in them.
    """
    if not ran:
        results = trials.results.values()
        if left_out := over(result.judged for result in results):
            return Verdict.UNKNOWN, reasons.nothing_judged(left_out)
        why = next((result.unknown for result in results if result.unknown), reasons.NO_TIME)
        return Verdict.UNKNOWN, why
    if (stale := trials.ledger.stale()) is not None:
        return Verdict.UNKNOWN, stale
    results = trials.results.values()
    if unchecked := [r.unknown for r in results if r.verdict is Verdict.UNKNOWN and not r.judged]:
        return Verdict.UNKNOWN, unchecked[0]  # what some cases do is not checked in any
    if open_ones := [result for result in ran if result.verdict is Verdict.UNKNOWN]:
        return Verdict.UNKNOWN, open_ones[0].unknown
    wanted = hunt.check.spec.degrees or hunt.options.degrees
    asked = {case.tp for case in listed(hunt)} or set(wanted)
    enough = max(len(asked), len(listed(hunt)))
    never = sorted(asked - hunt.impossible - {result.case.tp for result in ran})
    if never and hunt.options.examples >= enough:
        return Verdict.UNKNOWN, reasons.never_ran(never)
    if blind := {key: own for key, own in judged.items() if own.blind}:
        return Verdict.UNKNOWN, reasons.never_judged(blind)
    if judged and all(own.extra or not own.elements for own in judged.values()):
        return Verdict.UNKNOWN, reasons.all_empty(len(ran))
    return Verdict.PASS, None


def listed(hunt: Hunt) -> Sequence[Case]:
    """The cases of a spec that lists them."""
    cases = hunt.check.spec.cases
    return () if callable(cases) else cases


def left_out(trials: Trials, hunt: Hunt) -> list[str]:
    """What is to be said of listed cases that were not run, and of degrees without a case: a line
    each."""
    cases = listed(hunt)
    left = [case for case in cases if trials.result(case) is None]
    few = hunt.options.examples < len(cases)
    notes = [reasons.listed_not_run(left, len(cases), few=few)] if left else []
    return notes + ([reasons.no_case(sorted(hunt.impossible))] if hunt.impossible else [])


def masks_too_small(trials: Trials) -> list[str]:
    """A line for those that ranks have parts of, where no case's were large enough to show whether
    they draw different ones."""
    most: dict[str, float] = {}
    for result in trials.results.values():
        for line, bits in result.telling.items():
            most[line] = max(most.get(line, 0.0), bits)
    small = {line: bits for line, bits in most.items() if bits < TELLING}
    return [reasons.masks_too_small(small, TELLING)] if small else []


def most_used(ran: Iterable[CaseResult]) -> dict[str, float]:
    """The largest error over bound that was right, by dtype."""
    usage: dict[str, float] = {}
    for result in ran:
        dtype = result.case.dtype
        usage[dtype] = max(usage.get(dtype, 0.0), result.usage)
    return usage


def left_behind(results: Iterable[CaseResult], effect: LeftBehind | None) -> list[LeftBehind]:
    """What the cases left behind, each thing once, after an effect that was seen of it."""
    found = [effect] if effect else []
    seen: set[str] = set()
    for result in results:
        fresh = [left for left in result.left if left.name not in seen]
        found += [LeftBehind(result.case, left) for left in fresh]
        seen |= {left.name for left in fresh}
    return found
