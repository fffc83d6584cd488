"""Tensors that few noisy runs suspect are judged again under the bounds of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path

import torch

from tpcheck.evidence import Absent, Values
from tpcheck.oracle.effort import CLOSER, CONFIRM, FLOOR, SCREEN, Effort
from tpcheck.oracle.pose import Posed
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Target
from tpcheck.runner.looked_at import Found, looked_at, outside
from tpcheck.runner.own_buffers import set_aside
from tpcheck.tensors.blocks import largest
from tpcheck.tensors.digest import NOTHING
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

#: A float64 tensor this many times off its bound stays wrong under any other one: bounds of a case
#: differ by their noise, tens of percent, and not by orders of magnitude. It saves the many runs.
CLEAR = 1e3
#: Of the largest number of its tensor: so far off nothing right is in float64, however its rounding
#: errors have grown.
PLAIN = 1e-6
#: A tensor this many times off its bound is taken for wrong where that only decides what is looked
#: at first, and with how many runs. With less, right ones that few runs suspect pass for it; with
#: more, small faults cost as much as right cases.
FAR = 3.0


def of_few_runs(posed: Posed) -> Posed:
    """The case under the bounds of few noisy runs, if it was posed under the least ones."""
    if posed.effort is not FLOOR:
        return posed
    assert posed.closely is not None, "posed by `pose`"
    return posed.closely(SCREEN)


def screened(
    posed: Posed, reports: list[RankReport], folder: Path, *, closely: bool = True
) -> Posed:
    """Judges what is outside of the least bounds under those of few noisy runs: in place, as ranks
    would have. Returns the case as it was judged. What ranks share in a way of their own is set
    aside first.

    Args:
        closely: also where a tensor is plainly wrong, and that is all that is asked.
    """
    set_aside(posed, reports, folder)
    if posed.effort is not FLOOR or not any(report.mismatches for report in reports):
        return posed
    if not closely and _is_plain(posed, reports):
        return posed
    if (known := _by_their_operations(posed, reports, folder)) is not None:
        return known
    again = of_few_runs(posed)
    for report in reports:
        problem = again.problems[again.case.dp_coordinate(report.rank)]
        unused = {(t.kind, t.name) for t in problem.targets if t.unused}
        mismatches, report.usage = looked_at(again, report, folder)
        report.mismatches = [
            m for m in mismatches if not (m.detail == Absent() and (m.kind, m.tensor) in unused)
        ]
    return again


def _by_their_operations(posed: Posed, reports: list[RankReport], folder: Path) -> Posed | None:
    """The case with σ of each suspect at least that of the operation which makes it, where all are
    right then: each number's own, in place of what its row and column tell. None where one is not,
    or more is wrong than single numbers."""
    found = [mismatch for report in reports for mismatch in report.mismatches]
    if posed.rounded is None or not all(map(_is_of_single_numbers, found)):
        return None
    problems = []
    for problem in posed.problems:
        made = [_as_made(posed, problem.d, t, reports, folder) for t in problem.targets]
        known = [target for target in made if target is not None]
        if len(known) < len(made):
            return None
        problems.append(replace(problem, targets=known))
    again = replace(posed, problems=problems)
    looked = [looked_at(again, report, folder) for report in reports]
    if any(mismatches for mismatches, _ in looked):
        return None
    for report, (_, usage) in zip(reports, looked, strict=True):
        report.mismatches, report.usage = [], usage
    return again


def _as_made(
    posed: Posed, d: int, target: Target, reports: list[RankReport], folder: Path
) -> Target | None:
    """A tensor with σ of what is outside of its bounds at least that of its operation; None where
    that is not known."""
    at = outside(posed, d, target, reports, folder)
    if not len(at):
        return target
    assert posed.rounded is not None, "asked before"
    if (each := posed.rounded(d, target.kind, target.name, at)) is None:
        return None
    sigma = target.spread.sigma.clone(memory_format=torch.contiguous_format)
    sigma.view(-1)[at] = sigma.view(-1)[at].maximum(each.sqrt())
    return replace(target, spread=replace(target.spread, sigma=sigma))


def _is_of_single_numbers(mismatch: Mismatch) -> bool:
    own = mismatch.detail
    return isinstance(own, Values) and all(
        more is None for more in (own.norm_error, own.gain_error, own.dtype, own.nan)
    )


def _is_plain(posed: Posed, reports: list[RankReport]) -> bool:
    """Whether the least bounds are enough to say that a case in float64 fails: a tensor is far off
    them, and off in digits that can be seen."""
    found = _suspected(reports) if posed.case.dtype == "float64" else []
    if not found or _is_rare(posed, found):
        return False
    some = (t for p in posed.problems for t in p.targets if t.value.numel())
    sizes = {(t.kind, t.name): largest(t.value) for t in some}
    return any(
        m.error is not None
        and m.error > CLEAR * (m.bound or 0.0)
        and m.error > PLAIN * sizes.get((m.kind, m.tensor), inf)
        for m in found
    )


def doubtful(posed: Posed, reports: list[RankReport], until: float = inf) -> bool:
    """Whether closer bounds could clear a tensor: not where a float64 one is far off its own,
    unless few runs may not have met what it hangs on. What only the least bounds have judged is
    always one.

    Args:
        until: the first step with something that is wrong under any bounds.
    """
    found = _suspected(reports, until)
    if posed.effort is not SCREEN:
        return posed.effort is FLOOR and bool(found)
    if posed.case.dtype != "float64" or _is_rare(posed, found):
        return bool(found)
    near = any(m.error is not None and m.error <= CLEAR * (m.bound or 0.0) for m in found)
    return near or (bool(found) and all(map(_hangs_on_a_step, found)))


def _hangs_on_a_step(mismatch: Mismatch) -> bool:
    """Whether an optimizer's step comes before it, which may jump: by the sign of a gradient that
    is zero but for rounding."""
    return mismatch.name.at.step > 0 or mismatch.kind in (Kind.PARAM, Kind.OPTIMIZER_STATE)


def look_again(
    closely: Callable[[Effort, int], Posed],
    reports: list[RankReport],
    folder: Path,
    until: float = inf,
) -> Posed:
    """Judges the tensors that each rank kept for suspect once more, under the bounds of more runs,
    and, where these clear one or may not have met what it hangs on, of many: in place, the
    mismatches of those that are right after all are taken out of `reports`. In training the steps
    up to the first one that computes what is far off, or else in which most tensors begin to be,
    are looked at alone: where one in them stays wrong, what is wrong after it follows, and stays.

    Args:
        closely: (effort, steps) → so many steps of the case posed again; 1 of a case without.
        until: as of `doubtful`.

    Returns:
        The case as it decided.
    """
    suspected = _suspected(reports, until)
    last = max(m.name.at.step for m in suspected)
    for step in dict.fromkeys([_telling(suspected, last), last]):
        posed = _looked(closely, step, reports, folder)
        if any(mismatch.name.at.step <= step for mismatch in _suspected(reports, until)):
            break
    return posed


def _telling(suspected: list[Mismatch], last: int) -> int:
    """The first step that computes what is far off; else that in which most begin to be; the last
    one where none is. A gradient near zero whose sign turned in one run has the parameter and its
    state stay off in all steps after it."""
    far = list(filter(is_far, suspected))
    stays = Kind.PARAM, Kind.OPTIMIZER_STATE
    if clear := [m.name.at.step for m in far if m.kind not in stays]:
        return min(clear)
    begins: dict[tuple[Kind, str, int], int] = {}
    for m in sorted(far, key=lambda m: m.name.at.step):
        begins.setdefault((m.kind, m.name.base, m.rank), m.name.at.step)
    count = Counter(begins.values())
    return max(sorted(count), key=lambda step: count[step], default=last)


def is_far(mismatch: Mismatch) -> bool:
    """Whether a tensor is so far off that other bounds are unlikely to clear it."""
    error, bound = mismatch.error, mismatch.bound
    return error is None or not error <= FAR * (bound or 0.0)


def _looked(
    closely: Callable[[Effort, int], Posed], step: int, reports: list[RankReport], folder: Path
) -> Posed:
    """As `look_again`, of the suspects up to this step."""
    suspected = [m for m in _suspected(reports) if m.name.at.step <= step]
    posed = closely(CLOSER, step + 1)
    found = [looked_at(posed, report, folder) for report in reports]
    until = step if _is_rare(posed, suspected) else _unsettled(suspected, found)
    if until is not None:
        confirmed = closely(CONFIRM, until + 1)
        again = [looked_at(confirmed, report, folder) for report in reports]
        if until == step:
            posed, found = confirmed, again
        else:
            found = [_joined(*both, until) for both in zip(again, found, strict=True)]
            left = [m.name.at.step for mismatches, _ in found for m in mismatches]
            if min(left, default=step) <= until:  # what is wrong first was decided by it
                posed = confirmed
    for report, (mismatches, usage) in zip(reports, found, strict=True):
        report.mismatches, report.usage = mismatches, usage
    return posed


def _unsettled(suspected: list[Mismatch], found: list[Found]) -> int | None:
    """The last step in which fewer runs cleared a tensor that more may not, or, where all that is
    left is near its bound, left one that more may clear; None where there is none. Where one stays
    far off, up to its step: what comes after follows from it."""
    stays = {(m.kind, m.tensor, m.rank): m for mismatches, _ in found for m in mismatches}
    cleared = [m.name.at.step for m in suspected if (m.kind, m.tensor, m.rank) not in stays]
    names = {(m.kind, m.tensor, m.rank) for m in suspected}
    left = [m for name, m in stays.items() if name in names]
    far = [m.name.at.step for m in left if is_far(m)]
    if left and not far:  # rare errors may be many times as large as those that few runs met
        return max(m.name.at.step for m in suspected)
    return max((step for step in cleared if not far or step <= min(far)), default=None)


def _joined(until: Found, after: Found, step: int) -> Found:
    """The mismatches of one up to a step, and of the other after it."""
    early = [m for m in until[0] if m.name.at.step <= step]
    return early + [m for m in after[0] if m.name.at.step > step], max(until[1], after[1])


def _suspected(reports: list[RankReport], until: float = inf) -> list[Mismatch]:
    """Those that closer bounds may clear. After a step in which something is wrong under any bounds
    (a mask, a NaN, replicas that differ) they follow from it, and stay."""
    found = [(m, (m.kind, m.tensor) in r.suspects) for r in reports for m in r.mismatches]
    sure = [m for m, suspect in found if not suspect and m.has_step]
    wrong = [m.name.at.step for m in sure if not _may_be_left(m, reports)]
    last = min([until, *wrong])
    return [m for m, suspect in found if suspect and m.name.at.step <= last]


def _may_be_left(mismatch: Mismatch, reports: list[RankReport]) -> bool:
    """Whether it is state that another rank keeps (`shared_state`): nothing is wrong by that."""
    if mismatch.kind is not Kind.OPTIMIZER_STATE or not isinstance(mismatch.detail, Absent):
        return False
    key = mismatch.kind, mismatch.tensor
    return any(report.digests.get(key, NOTHING) != NOTHING for report in reports)


def _is_rare(posed: Posed, found: list[Mismatch]) -> bool:
    """Whether what few runs may not have met can be behind one: an integer hangs on a tie, and a
    number of float16 that is not finite on what overflows, or is rounded to zero. So does what has
    fewer digits than its case, which rounding moves by steps or not at all."""
    if posed.coarse:
        return True
    infinite = any(m.actual is not None and not isfinite(m.actual) for m in found)
    if infinite and posed.case.dtype == "float16":
        return True
    integers = {(t.kind, t.name) for t in posed.problems[0].targets if t.exact is not None}
    return any((m.kind, m.tensor) in integers for m in found)
