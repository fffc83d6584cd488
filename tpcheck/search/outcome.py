"""What the cases of a check come to, where none of them is a counterexample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tpcheck.evidence.judged import Tensors, over
from tpcheck.report import reasons
from tpcheck.search.hunt import Hunt
from tpcheck.search.trials import Trials
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
        left_out = over(result.judged for result in trials.results.values())
        return Verdict.UNKNOWN, reasons.none_counts(left_out)
    if (stale := trials.ledger.stale()) is not None:
        return Verdict.UNKNOWN, stale
    if open_ones := [result for result in ran if result.verdict is Verdict.UNKNOWN]:
        return Verdict.UNKNOWN, open_ones[0].unknown
    asked = set(hunt.options.degrees) if callable(hunt.check.spec.cases) else set()
    never = sorted(asked - hunt.impossible - {result.case.tp for result in ran})
    if never and hunt.options.examples >= len(asked):
        return Verdict.UNKNOWN, reasons.never_ran(never)
    if blind := {key: own for key, own in judged.items() if own.blind}:
        return Verdict.UNKNOWN, reasons.never_judged(blind)
    return Verdict.PASS, None


def left_behind(results: Iterable[CaseResult], effect: LeftBehind | None) -> list[LeftBehind]:
    """What the cases left behind, each thing once, after an effect that was seen of it."""
    found = [effect] if effect else []
    seen: set[str] = set()
    for result in results:
        fresh = [left for left in result.left if left.name not in seen]
        found += [LeftBehind(result.case, left) for left in fresh]
        seen |= {left.name for left in fresh}
    return found
