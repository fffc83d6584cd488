"""What the cases of a check come to, where none of them is a counterexample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.evidence.judged import Tensors, over
from tpcheck.evidence.left import LeftBehind
from tpcheck.report import reasons
from tpcheck.search.hunt import Hunt
from tpcheck.search.options import Options
from tpcheck.search.reach import Open, Reach
from tpcheck.search.trials import Trials
from tpcheck.tensors.masks import TELLING
from tpcheck.verdict import CaseResult, Verdict


def undecided(
    trials: Trials, hunt: Hunt, ran: Sequence[CaseResult], judged: Tensors
) -> Open | None:
    """Why the check is UNKNOWN; None where it is a PASS.

    Args:
        ran: the cases that count.
        judged: how much of each tensor was judged in them.
    """
    results = list(trials.results.values())
    cases = unsettled(results)
    if not ran:
        if left_out := over(result.judged for result in results):
            return Open(reasons.nothing_judged(left_out), more=not cases)
        return cases[0] if cases else Open(reasons.NO_TIME, more=True)
    if (stale := trials.ledger.stale()) is not None:
        return Open(stale)
    if cases:
        return cases[0]
    left_out = over(result.judged for result in results if not result.counts)
    if left_out and judged and not any(own.elements for own in judged.values()):
        return Open(reasons.nothing_judged(left_out), more=True)
    reach = reach_of(hunt, ran, judged)
    wanted = degrees_of(hunt.check, hunt.options)
    enough = hunt.options.examples >= max(len(wanted), len(listed(hunt.check)))
    missing = reach.missing(wanted if enough else ())
    return None if missing is None else Open(missing, more=True)


def unsettled(results: Sequence[CaseResult]) -> list[Open]:
    """Cases that could not be decided; those first that do what is not checked in any. No other
    case makes up for one, as it does for one of which nothing could be judged."""
    unknown = [result for result in results if result.verdict is Verdict.UNKNOWN]
    found = [result for result in unknown if not result.judged]
    found += [result for result in unknown if result.judged and result.counts]
    return [Open(result.unknown or "", case=result.case) for result in found]


def reach_of(hunt: Hunt, ran: Sequence[CaseResult], judged: Tensors) -> Reach:
    """What the cases that count got to."""
    degrees = frozenset(result.case.tp for result in ran)
    return Reach(len(ran), degrees, frozenset(hunt.impossible), judged)


def degrees_of(check: Check, options: Options) -> set[int]:
    """Those at which a check is to have cases."""
    listed_degrees = {case.tp for case in listed(check)}
    return listed_degrees or set(check.spec.degrees or options.degrees)


def listed(check: Check) -> Sequence[Case]:
    """The cases of a spec that lists them."""
    cases = check.spec.cases
    return () if callable(cases) else cases


def beside(trials: Trials, hunt: Hunt) -> list[str]:
    """What is to be said of a check without a counterexample, besides its verdict: a line each."""
    return left_out(trials, hunt) + not_apart(trials) + masks_too_small(trials)


def left_out(trials: Trials, hunt: Hunt) -> list[str]:
    """What is to be said of listed cases that were not run, but for a failure that none of them
    followed, and of degrees without a case: a line each."""
    cases = listed(hunt.check)
    few = hunt.options.examples < len(cases)
    left = [case for case in cases if trials.result(case) is None] if few or hunt.cut else []
    notes = [reasons.listed_not_run(left, len(cases), few=few)] if left else []
    return notes + ([reasons.no_case(sorted(hunt.impossible))] if hunt.impossible else [])


def not_apart(trials: Trials) -> list[str]:
    """A line of rows that are gigabytes apart, where they were not tried to the end."""
    filled = trials.rows.filled
    return [] if filled is None else [reasons.not_apart(filled)]


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
