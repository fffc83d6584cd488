"""Runs one case of one check on an engine and puts the ranks' evidence together."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import sysconfig
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
from safetensors.torch import load_file

from tpcheck import budget, placement
from tpcheck.bounds import compare, other_rules
from tpcheck.budget import Budget
from tpcheck.case import Case
from tpcheck.comms.trace import POINT_TO_POINT
from tpcheck.errors import EngineUnavailable, InvalidArgument
from tpcheck.oracle.pose import STUDY, Posed, ask, pose
from tpcheck.plan.in_check import Planned, mismatch, planned
from tpcheck.protocol.bundle import write_bundle
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.spec import Check
from tpcheck.verdict import CaseResult, Mismatch

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine

# A float64 tensor this many times off its bound stays wrong under any other one.
CLEAR = 1e3


class Runner:
    """One check on one engine; keeps what the ranks need to know of it."""

    def __init__(self, check: Check, engine: Engine) -> None:
        self.check, self.engine = check, engine
        spec = check.spec
        parts: dict[str, Any] = {"candidate": check.candidate, "forward": spec.forward}
        parts |= {"load": check.load, "schedule": check.schedule, "finalize": spec.finalize}
        try:
            self._blob = cloudpickle.dumps(parts)
        except Exception as error:
            raise InvalidArgument(
                f"{check.title}: the candidate can't be sent to the ranks: {error}; let it close "
                "over nothing that can't be pickled"
            ) from None
        self._key = hashlib.sha256(self._blob).hexdigest()[:16]
        self._files = _own_modules()
        self._plans: dict[str, Planned | None] = {}

    def run(
        self, case: Case, *, dump: Path | None = None, ones: bool = False, others: bool = False
    ) -> CaseResult:
        """Poses the case, runs it on the ranks, judges.

        Args:
            dump: a folder for every rank's tensors.
            ones: cotangents of ones, in place of random ones.
            eager: run what the candidate compiles eagerly, as is done where borders are watched.
            others: say also which other rules alarm (`CaseResult.alarms`).

        Raises:
            InvalidArgument: the case can't be (its spec, layout or budget says so), or the engine
                is too small; nothing of the candidate has run then.
        """
        size = case.world_size
        if size > self.engine.ranks:
            raise EngineUnavailable(
                f"the case needs {size} ranks ({case.describe()}) and the engine has "
                f"{self.engine.ranks}; give --ranks {size} or a smaller mesh"
            )
        return self.execute(pose(self.check.spec, case, ones=ones), dump=dump, others=others)

    def execute(
        self,
        posed: Posed,
        *,
        dump: Path | None = None,
        watch: int | str | None = None,
        follow: bool = False,
        eager: bool = False,
        others: bool = False,
    ) -> CaseResult:
        """Runs a posed case: the same one may run on several engines.

        Args:
            dump: a folder for every rank's tensors.
            watch: the microbatch (or `step`) whose module borders are dumped, too.
            follow: note the module of collectives in backward, too (those in forward always do).
            others: say also which other rules alarm (`CaseResult.alarms`).
        """
        self.engine.teach(self._key, self._blob, self._files)
        allowed = self.budget(posed.case) if self.check.communication else None
        plan = self._planned(posed.case)
        epoch = self.engine.next_epoch()
        bundle = self.engine.folder / f"case{epoch}.safetensors"
        suspects = self.engine.folder / f"case{epoch}.suspects"
        suspects.mkdir()
        write_bundle(posed.problems, bundle, own=others)
        work = Work(
            case=posed.case,
            bundle=str(bundle),
            params=posed.params,
            inputs=posed.inputs,
            outputs=posed.outputs,
            targets={(t.kind, t.name): t.entry for t in posed.problems[0].targets},
            named=posed.named,
            plan=plan.promised if plan else None,
            suspects=str(suspects),
            dump=str(dump) if dump else None,
            saved=allowed is not None and allowed.saved is not None,
            watch=watch,
            follow=follow,
            eager=eager or watch is not None,
            rules=others,
            epoch=epoch,
        )
        try:
            outcomes = self.engine.run(self._key, work)
            reports = [o for o in outcomes if isinstance(o, RankReport)]
            if len(reports) == len(outcomes) and _doubtful(posed, reports):
                ones = posed.problems[0].ones
                study = pose(self.check.spec, posed.case, STUDY, ones=ones)
                look_again(study, reports, suspects)
        finally:
            bundle.unlink(missing_ok=True)
            shutil.rmtree(suspects, ignore_errors=True)
        result = judge(posed, self.engine.name, outcomes, allowed)
        if lost_messages(reports):
            self.engine.kill()  # the next case would receive them
        if others:
            result.alarms = other_rules.seen(outcomes)
        if plan:
            found = [mismatch(finding, 0) for finding in plan.findings]
            result.mismatches = found + result.mismatches
        return result

    def budget(self, case: Case) -> Budget | None:
        """What the spec allows a microbatch of this case to communicate; None for anything.

        Raises:
            InvalidArgument: the spec's `budget` raises, or returns something else.
        """
        spec = self.check.spec
        found = ask(spec, "budget", spec.budget, case) if spec.budget else None
        if found is None or isinstance(found, Budget):
            return found
        raise InvalidArgument(
            f"spec {spec.name!r}: budget(case) returned a {type(found).__name__}, not a Budget "
            "(or None, which allows anything)"
        )

    def _planned(self, case: Case) -> Planned | None:
        """The check's plan in this case; it depends on the sizes and the degree alone."""
        if self.check.plan is None:
            return None
        key = json.dumps([case.dims, case.tp], sort_keys=True, default=str)
        if key not in self._plans:
            self._plans[key] = planned(self.check.spec, self.check.plan, case)
        return self._plans[key]


def _doubtful(posed: Posed, reports: list[RankReport]) -> bool:
    """Whether closer bounds could clear a tensor: not where a float64 one is far off its own."""
    if posed.look is STUDY:
        return False
    found = [m for r in reports for m in r.mismatches if (m.kind, m.tensor) in r.suspects]
    if posed.case.dtype != "float64":
        return bool(found)
    return any(m.error is not None and m.error <= CLEAR * (m.bound or 0.0) for m in found)


def look_again(study: Posed, reports: list[RankReport], folder: Path) -> None:
    """Judges the tensors that each rank kept for suspect once more, under the bounds of `study`:
    in place, the mismatches of those that are right after all are taken out of `reports`."""
    for report in reports:
        if not report.suspects:
            continue
        kept = load_file(folder / f"rank{report.rank}.safetensors")
        problem = study.problems[study.case.coordinates(report.rank).get("dp", 0)]
        targets = {(t.kind, t.name): t for t in problem.targets}
        mismatches = []
        for first in report.mismatches:
            key = (first.kind, first.tensor)
            if key not in report.suspects:
                mismatches.append(first)
                continue
            target = targets[key]
            expected, sigma = (
                placement.take(t, report.suspects[key], case=study.case, rank=report.rank)
                for t in (target.value, target.spread.sigma)
            )
            found = compare.compare(
                kept[f"{target.kind}/{target.name}"],
                expected,
                replace(target.spread, sigma=sigma),
                name=target.name,
                kind=target.kind,
                rank=report.rank,
                dtype=target.dtype if target.kind in ("output", "loss") else None,
            )
            if found.mismatch is not None:
                mismatches.append(found.mismatch)
            else:
                report.usage = max(report.usage, found.usage)
        report.mismatches = mismatches


def judge(
    posed: Posed,
    engine: str,
    outcomes: list[RankReport | Mismatch],
    allowed: Budget | None = None,
) -> CaseResult:
    """All ranks' evidence as one result, the most telling first."""
    result = CaseResult(posed.case, engine)
    reports = [o for o in outcomes if isinstance(o, RankReport)]
    failed = [o for o in outcomes if isinstance(o, Mismatch)]
    causes = [m for m in failed if not m.detail.get("consequence")]
    result.mismatches = causes + (failed if not causes else [])
    for report in reports:
        result.mismatches += report.mismatches
        result.usage = max(result.usage, report.usage)
        result.uncompiled |= report.uncompiled
    if not failed:
        result.mismatches += _disagreeing_replicas(posed, reports)
        result.mismatches += _disagreeing_traces(reports)
    if allowed is not None and not result.mismatches:
        # only of a candidate whose values are right: a wrong one communicates wrongly too
        for report in reports:
            result.mismatches += budget.audit(
                allowed, posed.case, report.rank, report.events, report.saved
            )
    if failed and causes:
        for key, own in (("peers", "last"), ("stacks", "stack")):
            of_rank = {str(m.rank): m.detail[own] for m in failed if m.detail.get(own)}
            for mismatch in causes:
                mismatch.detail.setdefault(key, of_rank)
    result.trace = [report.events for report in reports]
    return result


def _disagreeing_replicas(posed: Posed, reports: list[RankReport]) -> list[Mismatch]:
    """Ranks that hold the same elements must hold the same bits."""
    found = []
    by_rank = {report.rank: report for report in reports}
    for target in posed.problems[0].targets:
        key = (target.kind, target.name)
        entry = _live(target.entry, reports, target.name, target.kind)
        if entry is None:
            continue
        shared = posed.shared and target.kind in ("param", "param_grad")
        over = list(posed.case.mesh) if shared else None
        shape = tuple(target.value.shape)
        for ranks in placement.replicas(entry, shape, case=posed.case, over=over):
            digests = {rank: by_rank[rank].digests.get(key) for rank in ranks}
            first = digests[ranks[0]]
            odd = [rank for rank in ranks if digests[rank] != first]
            if odd:
                detail = {"of": target.kind, "ranks": ranks, "differ_from_first": odd}
                found.append(Mismatch(target.name, "replica", odd[0], detail=detail))
    return found


def _live(entry: Any, reports: list[RankReport], name: str, kind: str) -> Any:
    """The placement that the candidate really has; None for a DTensor gradient, whose own
    placement may differ from its parameter's."""
    live = next((r.entries[name] for r in reports if name in r.entries), None)
    if kind in ("param", "param_grad") and live is not None:
        return live if placement.by_axis(live) == placement.by_axis(entry) else None
    return entry


def _disagreeing_traces(reports: list[RankReport]) -> list[Mismatch]:
    """All ranks of a group must have run the same collectives on it, in the same order, and what
    one rank sent to another that one must have received."""
    sequences: dict[tuple[int, ...], dict[int, list[dict[str, Any]]]] = {}
    for report in reports:
        for event in report.events:
            if event["op"] not in POINT_TO_POINT:
                of_group = sequences.setdefault(tuple(event["group"]), {})
                of_group.setdefault(report.rank, []).append(event)
    found = lost_messages(reports)
    for group, by_rank in sequences.items():
        members = [rank for rank in group if rank < len(reports)]
        first = by_rank.get(members[0], [])
        for rank in members[1:]:
            own = by_rank.get(rank, [])
            if list(map(_what, own)) != list(map(_what, first)):
                detail = {
                    "group": list(group),
                    "reason": _first_difference(members[0], first, rank, own),
                    "ranks": {members[0]: list(map(_what, first)), rank: list(map(_what, own))},
                }
                found.append(Mismatch("collectives", "collective", rank, detail=detail))
                break
    return found


def lost_messages(reports: list[RankReport]) -> list[Mismatch]:
    """Messages between two ranks that only one of them knows of."""
    counts: dict[tuple[int, int], list[int]] = {}  # (from, to) → sent, received
    for report in reports:
        for event in report.events:
            if event["peer"] is not None:
                sends, ends = event["op"] == "send", (report.rank, event["peer"])
                both = counts.setdefault(ends if sends else ends[::-1], [0, 0])
                both[0 if sends else 1] += 1
    found = []
    for (source, target), (sent, received) in counts.items():
        if sent != received:
            reason = (
                f"rank {source} sent {sent} messages to rank {target}, which received {received}"
            )
            found.append(Mismatch("messages", "collective", target, detail={"reason": reason}))
    return found


def _what(event: dict[str, Any]) -> str:
    return f"{event['op']}({event['reduce_op']}) {event['dtype']}"


def _first_difference(
    a: int, first: list[dict[str, Any]], b: int, second: list[dict[str, Any]]
) -> str:
    """Where two ranks' sequences part, with the module and the line of each."""
    pairs = zip_longest(first, second)
    step, both = next(
        (i, p) for i, p in enumerate(pairs) if None in p or _what(p[0]) != _what(p[1])
    )
    ran = [
        f"rank {rank} ran {_what(e)}{' of ' + e['module'] if e['module'] else ''} at {e['where']}"
        if e is not None
        else f"rank {rank} ran none"
        for rank, e in zip((a, b), both, strict=True)
    ]
    return f"collective {step + 1} of the group: {', '.join(ran)}"


def _own_modules() -> dict[str, str]:
    """Modules of the driver that ranks may have to find by file: none of the standard library,
    none of site-packages."""
    paths = {sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}
    installed = tuple(path + os.sep for path in paths)
    out = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py") and not file.startswith(installed) and name != "__main__":
            out[name] = file
    return out
