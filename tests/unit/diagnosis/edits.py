"""Ranks that hold what they should but for a known edit, and the diagnosis that they get (R =
degree)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tpcheck import specs
from tpcheck.bounds import compare
from tpcheck.case import Case
from tpcheck.diagnosis import diagnose
from tpcheck.diagnosis.facts import Dumps, Facts
from tpcheck.event import Event
from tpcheck.oracle.pose import Posed, pose
from tpcheck.placement import take
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Problem, Target
from tpcheck.report.diagnoses import sentence
from tpcheck.runner.judge import judge
from tpcheck.spec import Spec
from tpcheck.tensors.digest import fingerprint
from tpcheck.tensors.names import FIRST, Key
from tpcheck.verdict import CaseResult, Diagnosis, Mismatch
from tpcheck.vocabulary import Phase

Ranks = dict[int, dict[str, Any]]  # rank → kind/name → its tensor, or None
Edit = Callable[[Ranks, Posed], object]

ROW, COLUMN = specs.row_linear(), specs.column_linear()
DIMS = {"batch": 2, "seq": 3, "in_features": 8, "out_features": 12, "bias": True}
CASE = Case(dims=DIMS, mesh={"tp": 4}, seed=11)
WIDE = replace(CASE, mesh={"dp": 2, "tp": 4})
OUT, DX = "output/output", "input_grad/x"
DW, DB = "param_grad/weight", "param_grad/bias"


def targets(posed: Posed, rank: int) -> dict[str, tuple[Target, Tensor, Tensor]]:
    """kind/name → the target and this rank's slices of its value and σ."""
    problem = posed.problems[posed.case.dp_coordinate(rank)]
    cut = partial(take, case=posed.case, rank=rank)
    return {
        f"{t.kind}/{t.name}": (t, cut(t.value, t.entry).clone(), cut(t.spread.sigma, t.entry))
        for t in problem.targets
    }


def expected(posed: Posed) -> Ranks:
    """What correct ranks hold, in the dtypes of the case."""
    world = range(posed.case.world_size)
    return {r: {k: v.to(t.dtype) for k, (t, v, _) in targets(posed, r).items()} for r in world}


def judged(posed: Posed, ranks: Ranks) -> CaseResult:
    """The result that these ranks' reports come to."""
    reports: list[RankReport | Mismatch] = []
    for rank, held in ranks.items():
        report = RankReport(rank)
        for key, (t, value, sigma) in targets(posed, rank).items():
            spread, dtype = replace(t.spread, sigma=sigma), t.dtype if key == OUT else None
            where: Any = {"name": t.name, "kind": t.kind, "rank": rank, "dtype": dtype}
            found = compare.compare(held[key], value, spread, **where)
            report.mismatches += [found.mismatch] if found.mismatch else []
            report.digests[t.kind, t.name] = fingerprint(held[key])
        reports.append(report)
    return judge(posed, "gloo", reports)


def examine(
    *edits: Edit,
    spec: Spec = ROW,
    case: Case = CASE,
    right: Callable[[Case], bool] | None = None,
    right_posed: Callable[[Posed], bool] | None = None,
    trace: Sequence[list[Event]] = (),
) -> Diagnosis:
    """The diagnosis of ranks with these edits, and of what they exchanged (none says anything
    where there is none); `right` says which other cases pass besides those of one rank,
    `right_posed` which problems of one's own making."""
    posed = pose(spec, case, watch=FIRST)
    ranks = expected(posed)
    assert judged(posed, ranks).mismatches == []
    for edit in edits:
        edit(ranks, posed)
    found = judged(posed, ranks)
    assert found.mismatches
    found.trace = list(trace)

    def rerun(other: Case) -> CaseResult:
        passes = other.world_size == 1 or (right is not None and right(other))
        return CaseResult(other, "gloo", [] if passes else found.mismatches)

    silent = replace(spec, budget=None)  # no rank has run, so that no trace says anything

    def execute(other: Posed) -> CaseResult:
        passes = right_posed is not None and right_posed(other)
        return CaseResult(other.case, "gloo", [] if passes else found.mismatches)

    facts = Facts(posed, found, found, dumps_of(ranks), rerun, silent, execute=execute)
    named = diagnose.diagnose(facts)
    return replace(named, message=sentence(named.cause))


def traced(*groups: list[list[int]], phase: Phase = Phase.BACKWARD) -> list[list[Event]]:
    """The trace of ranks that add something up over each of these sets of groups, one after the
    other: gradients, or what they clip by."""

    def event(group: list[int]) -> Event:
        size: Any = {"shape": (), "elements": 1, "bytes": 8}
        clips = phase is Phase.STEP
        over = tuple(group)
        return Event(
            "all_reduce", "sum", over, "float64", phase=phase, where="", clips=clips, **size
        )

    ranks = {rank for each in groups for group in each for rank in group}
    return [[event(g) for each in groups for g in each if rank in g] for rank in sorted(ranks)]


def dumps_of(ranks: Ranks) -> Dumps:
    """The tensors that the ranks have."""
    return {
        rank: {Key.parse(key): tensor for key, tensor in held.items() if tensor is not None}
        for rank, held in ranks.items()
    }


def alone(*mismatches: Mismatch, case: Case = CASE) -> Diagnosis:
    """The diagnosis of evidence without tensors, traces or other runs."""
    posed = Posed(case, [Problem(d) for d in range(case.dp)], {}, {}, {})
    result = CaseResult(case, "gloo", list(mismatches))
    named = diagnose.diagnose(Facts(posed, result, result, {}, lambda other: None))
    return replace(named, message=sentence(named.cause))


def change(key: str, how: Callable[[dict[int, Any], int], Any], *only: int) -> Edit:
    """An edit of one tensor on all ranks, or on those in `only`: how(all ranks' tensors, rank)."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        old = {rank: held[key] for rank, held in ranks.items()}
        for rank in only or ranks:
            ranks[rank][key] = how(old, rank)

    return edit


def times(key: str, factor: float, *only: int) -> Edit:
    return change(key, lambda old, r: factor * old[r], *only)


def terms(key: str) -> Edit:
    """Each rank keeps a term of its own; the terms sum to the reference."""

    def term(old: dict[int, Any], rank: int) -> Tensor:
        mine = [torch.cos((r + 2) * old[0]) for r in range(3)]
        return mine[rank] if rank < 3 else old[0] - sum(mine)

    return change(key, term)


def add_bias(factor: int) -> Edit:
    def edit(ranks: Ranks, posed: Posed) -> None:
        for held in ranks.values():
            held[OUT] = held[OUT] + factor * posed.problems[0].params["bias"]

    return edit


def noise(key: str) -> Edit:
    rng = torch.Generator().manual_seed(3)
    return change(key, lambda old, r: torch.randn(old[r].shape, generator=rng).to(old[r].dtype))
