"""All ranks' evidence as one result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from tpcheck import placement
from tpcheck.bounds.other_rules import ON_TENSORS
from tpcheck.budget import Budget
from tpcheck.comms import audit
from tpcheck.event import POINT_TO_POINT, Event
from tpcheck.evidence import NotAsSaved, Ran, ReplicasDiffer, Stuck, TracesDiffer
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Entry
from tpcheck.process.aspects import Left
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.optimizing import parameter_of
from tpcheck.protocol.problem import Target
from tpcheck.report import reasons
from tpcheck.runner.masks import telling, uncoordinated
from tpcheck.runner.messages import lost_messages
from tpcheck.runner.own_buffers import own_buffers
from tpcheck.runner.room import kept_whole
from tpcheck.runner.shared_state import LeftToReplicas, left_to_replicas, of_state
from tpcheck.tensors.names import InPass
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Impasse, Kind, Phase, Rule, Uncompiled

#: What → bytes that are held, and that are due.
Held = Mapping[str, tuple[int, int]]


def judge(
    posed: Posed,
    engine: str,
    outcomes: list[RankReport | Mismatch],
    allowed: Budget | None = None,
) -> CaseResult:
    """All ranks' evidence as one result, the most telling first."""
    result = CaseResult(posed.case, engine)
    reports = [o for o in outcomes if isinstance(o, RankReport)]
    misheld, failed = _apart([o for o in outcomes if isinstance(o, Mismatch)])
    idle = _not_run(reports) | {report.rank for report in reports if report.stopped}
    shown = [m for m in failed if not _waits_for(m, idle)]
    causes = [m for m in shown if not m.is_consequence]
    result.mismatches = misheld + (_with_peers(causes, failed) if causes else shown)
    left = left_to_replicas(posed, reports)
    found = kept_whole(reports) + [m for report in reports for m in report.mismatches]
    result.mismatches += _in_order(
        [m for m in found if of_state(posed, m.kind, m.tensor, m.rank) not in left]
    )
    for report in reports:
        result.usage = max(result.usage, report.usage)
        result.bytes = most_held(result.bytes, report.bytes)
        result.saved = max(result.saved, report.saved)
        result.compiles |= report.compiles
        result.configurations = max(result.configurations, report.configurations, key=len)
        result.ways |= report.ways
        result.undefined |= report.undefined
    if loaded := [m for m in result.mismatches if isinstance(m.detail, NotAsSaved)]:
        result.mismatches = loaded  # all else follows
    elif not failed:
        result.mismatches += _disagreeing_replicas(posed, reports, left)
        result.mismatches += _disagreeing_traces(reports)
        result.mismatches += uncoordinated(posed, reports)
        result.telling = telling(posed.case, reports)
    if allowed is not None and not result.mismatches:
        # only of a candidate whose values are right: a wrong one communicates wrongly too
        for report in reports:
            ran = report.events, report.saved, report.counted, report.steps, report.updates
            result.mismatches += audit.audit(allowed, posed.case, report.rank, *ran)
    result.trace = [report.events for report in reports]
    result.ended = [report.rank for report in reports]
    result.code = next((report.code for report in reports if report.code), {})
    return result


def differing(posed: Posed, reports: list[RankReport]) -> float:
    """The first step after which replicas differ, or whose masks ranks have not drawn as they must;
    ∞ where there is none."""
    left = left_to_replicas(posed, reports)
    found = _disagreeing_replicas(posed, reports, left) + uncoordinated(posed, reports)
    return min((m.name.at.step for m in found), default=math.inf)


def _apart(failed: list[Mismatch]) -> tuple[list[Mismatch], list[Mismatch]]:
    """How ranks that failed held their parameters, and that they failed."""
    misheld = [
        Mismatch(name, Kind.SHARDING, one.rank, detail=detail)
        for one in failed
        for name, detail in one.scene.misheld or ()
    ]
    return misheld, [
        one.seen_at(replace(one.scene, misheld=None)) if one.scene.misheld else one
        for one in failed
    ]


def _not_run(reports: Iterable[RankReport]) -> set[int]:
    """Ranks whose forward did not run, since they hold what can't be run."""
    return {
        report.rank
        for report in reports
        if not report.compared and any(m.kind is Kind.SHARDING for m in report.mismatches)
    }


def _waits_for(failed: Mismatch, ranks: set[int]) -> bool:
    """Whether a rank has waited for one of these, which follows from what they hold."""
    detail = failed.detail
    why, peer = (detail.why, detail.peer) if isinstance(detail, Stuck) else (None, None)
    at_second_hand = why in (Impasse.PEER_ABSENT, Impasse.AT_WORK) and bool(ranks)
    return at_second_hand or (why is Impasse.PEER_FINISHED and peer in ranks)


def _in_order(mismatches: list[Mismatch]) -> list[Mismatch]:
    """What is not a value first, then what was computed first."""
    values = sorted((m for m in mismatches if m.kind.is_value), key=lambda m: m.computed)
    return [m for m in mismatches if not m.kind.is_value] + values


def most_held(*each: Held) -> dict[str, tuple[int, int]]:
    """What of each was held most, and what was due there."""
    found: dict[str, tuple[int, int]] = {}
    for one in each:
        found |= {what: max(held, found.get(what, (0, 0))) for what, held in one.items()}
    return found


def _with_peers(causes: list[Mismatch], failed: list[Mismatch]) -> list[Mismatch]:
    """Each cause with what every rank that failed had entered, and where it stood."""
    peers = {str(m.rank): m.scene.last for m in failed if m.scene.last}
    stacks = {str(m.rank): m.scene.stack for m in failed if m.scene.stack}
    return [m.seen_at(replace(m.scene, peers=peers, stacks=stacks)) for m in causes]


def _disagreeing_replicas(
    posed: Posed, reports: list[RankReport], left: LeftToReplicas
) -> list[Mismatch]:
    """Ranks that hold the same elements must hold the same bits.

    Args:
        left: what of an optimizer's state ranks leave to others.
    """
    found, own = [], own_buffers(posed)
    by_rank = {report.rank: report for report in reports}
    for target in posed.problems[0].targets:
        key = (target.kind, target.name)
        entry = _live(posed, target, reports)
        if entry is None:
            continue
        shared = posed.shared and target.kind.is_of_parameter and key not in own
        over = list(posed.case.mesh) if shared else None
        shape = tuple(target.value.shape)
        for ranks in placement.replicas(entry, shape, case=posed.case, over=over):
            ranks = [rank for rank in ranks if of_state(posed, *key, rank) not in left]
            digests = {rank: by_rank[rank].digests.get(key) for rank in ranks}
            odd = [rank for rank in ranks if digests[rank] != digests[ranks[0]]]
            if odd:
                detail = ReplicasDiffer(target.kind, tuple(ranks), tuple(odd))
                found.append(Mismatch(target.name, Kind.REPLICA, odd[0], detail=detail))
    return found


def _live(posed: Posed, target: Target, reports: list[RankReport]) -> Entry | None:
    """The placement that the candidate really has; None for a DTensor gradient, whose own
    placement may differ from its parameter's."""
    if not target.kind.is_of_parameter:
        return target.entry
    base, params = InPass.parse(target.name).base, posed.params
    of = parameter_of(base, params) if target.kind is Kind.OPTIMIZER_STATE else base
    live = next((r.entries[of] for r in reports if of in r.entries), None)
    if of is None or live is None:
        return target.entry
    planned = params[of] if target.kind is Kind.OPTIMIZER_STATE else target.entry
    return target.entry if placement.by_axis(live) == placement.by_axis(planned) else None


def _disagreeing_traces(reports: list[RankReport]) -> list[Mismatch]:
    """All ranks of a group must have run the same collectives on it, in the same order, and what
    one rank sent to another that one must have received."""
    if any(report.stopped for report in reports):
        return []
    sequences: dict[tuple[int, ...], dict[int, list[Event]]] = {}
    for report in reports:
        for event in report.events:
            if event.op not in POINT_TO_POINT:
                of_group = sequences.setdefault(event.group, {})
                of_group.setdefault(report.rank, []).append(event)
    found = lost_messages(reports)
    for group, by_rank in sequences.items():
        members = [rank for rank in group if rank < len(reports)]
        first = by_rank.get(members[0], [])
        for rank in members[1:]:
            own = by_rank.get(rank, [])
            if list(map(_what, own)) != list(map(_what, first)):
                detail = _difference(group, members[0], first, rank, own)
                found.append(Mismatch("collectives", Kind.COLLECTIVE, rank, detail=detail))
                break
    return found


def undecided(outcomes: Sequence[RankReport | Mismatch]) -> str | None:
    """Why these say nothing of the candidate, where that is so."""
    if (late := still_building(outcomes)) is not None:
        return reasons.slow_build(late)
    if (eager := uncompiled(outcomes)) is not None:
        return reasons.not_compiled(eager)
    missing = unmodelled(outcomes)
    return reasons.not_modelled(missing) if missing else None


def still_building(outcomes: Iterable[RankReport | Mismatch]) -> float | None:
    """The limit that a candidate's `build` met, in seconds; None where it did not."""
    for outcome in outcomes:
        stuck = outcome.detail if isinstance(outcome, Mismatch) else None
        if isinstance(stuck, Stuck) and stuck.why is Impasse.STILL_BUILDING:
            return stuck.seconds
    return None


def unmodelled(outcomes: Iterable[RankReport | Mismatch]) -> str:
    """What a kernel does that nothing here does as a GPU does; else nothing."""
    missing = (one.unmodelled for one in outcomes if isinstance(one, RankReport))
    return next(filter(None, missing), "")


def uncompiled(outcomes: Iterable[RankReport | Mismatch]) -> Uncompiled | None:
    """Why what is handed to `torch.compile` ran eagerly, where it did."""
    why = (one.uncompiled for one in outcomes if isinstance(one, RankReport))
    return next(filter(None, why), None)


def left_changed(reports: list[RankReport]) -> list[Left]:
    """The state that any rank left changed; each name once, restored where it is on all ranks."""
    found: dict[str, Left] = {}
    for left in (left for report in reports for left in report.left):
        known = found.get(left.name)
        if known is None or known.restored:
            found[left.name] = left
    return list(found.values())


def _what(event: Event) -> str:
    return f"{event.op}({event.reduce_op}) {event.dtype}"


def _difference(
    group: tuple[int, ...], a: int, first: list[Event], b: int, second: list[Event]
) -> TracesDiffer:
    """Where two ranks' sequences part."""
    step, both = next(
        (i, pair)
        for i, pair in enumerate(zip_longest(first, second))
        if None in pair or _what(pair[0]) != _what(pair[1])
    )
    ran = [None if e is None else Ran(_what(e), e.module, e.where) for e in both]
    return TracesDiffer(
        group=group,
        step=step + 1,
        first=((a, ran[0]), (b, ran[1])),
        ranks={a: tuple(map(_what, first)), b: tuple(map(_what, second))},
    )


def alarms(outcomes: Iterable[RankReport | Mismatch]) -> set[Rule]:
    """Which rules of others alarm on a case, `tpcheck` and `.sum() loss` excepted. A rank that
    raises, dies or hangs, or whose parameters don't fit, is seen by any test, whatever its rule,
    unless it only forwards and the rank fails later."""
    found: set[Rule] = set()
    for outcome in outcomes:
        if isinstance(outcome, Mismatch):
            late = outcome.scene.phase in (Phase.BACKWARD, Phase.STEP)
            found |= {*ON_TENSORS} if late else {*ON_TENSORS, Rule.FORWARD_ONLY}
        elif not outcome.compared:
            found |= {*ON_TENSORS, Rule.FORWARD_ONLY}
        else:
            found |= outcome.alarms
            if any(m.kind.is_output for m in outcome.mismatches):
                found.add(Rule.FORWARD_ONLY)
    return found
