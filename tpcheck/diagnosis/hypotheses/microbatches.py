"""Hypotheses about microbatches: which of them count, how often, and in which order they came.

Letters: R degree.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import torch
from torch import Tensor

from tpcheck.diagnosis.evidence import Facts, Local, local_of, name_of
from tpcheck.oracle.pose import evaluate
from tpcheck.placement import take
from tpcheck.protocol.conventions import at
from tpcheck.verdict import Diagnosis

MOST_PASSES = 4  # 24 orders are tried


def accumulated(facts: Facts, local: Local) -> Diagnosis | None:
    """Some microbatches' gradients are not in the sum, or the first one's is there R times, or only
    that one was summed over the ranks."""
    case, passes = facts.case, facts.case.microbatches
    if local.target.kind != "param_grad" or passes < 2 or facts.spec is None:
        return None
    values = [_of_one_pass(facts, local, m) for m in range(passes)]
    for rank in local.wrong():
        parts = [take(value, local.target.entry, case=case, rank=rank) for value in values]
        one, many = parts[0], local.expected[rank] + (case.tp - 1.0) * parts[0]
        if case.tp > 1 and local.fits(local.actual[rank], rank, expected=many):
            message = f"{name_of(local)}: the first microbatch is {case.tp} times in the sum"
            return Diagnosis("summed-twice", message, {"factor": case.tp - 1.0})
        kept = [
            choice
            for choice in product((0, 1), repeat=passes)
            if 0 < sum(choice) < passes
            and local.fits(local.actual[rank], rank, expected=_chosen(choice, parts))
        ]
        if len(kept) == 1:
            there = [m for m, is_there in enumerate(kept[0]) if is_there]
            message = f"{name_of(local)}: only the microbatches {there} of {passes} are in the sum"
            return Diagnosis("gradient-dropped", message, {"kept": there, "of": passes})
        total = torch.stack(list(local.actual.values())).sum(0) if local.alike() else None
        once = local.expected[rank] + (case.tp - 1.0) * one
        if total is not None and local.fits(total, rank, expected=once):
            message = f"{name_of(local)}: only the first microbatch is summed over the ranks"
            return Diagnosis("partial-not-reduced", message, {"ranks": local.ranks})
    return None


def _of_one_pass(facts: Facts, local: Local, m: int) -> Tensor:
    """The full gradient that the reference has of microbatch `m` alone."""
    assert facts.spec is not None
    d = facts.case.coordinates(local.ranks[0]).get("dp", 0)
    problems = facts.posed.problems if facts.posed.shared else [facts.posed.problems[d]]
    alone = [
        replace(
            problem,
            cotangents=[
                {name: t if k == m else torch.zeros_like(t) for name, t in given.items()}
                for k, given in enumerate(problem.cotangents)
            ],
        )
        for problem in problems
    ]
    values = evaluate(facts.spec, facts.case, *alone)
    return values[0][local.target.kind, local.target.name]


def _chosen(choice: tuple[int, ...], parts: list[Tensor]) -> Tensor:
    return torch.stack([p for p, kept in zip(parts, choice, strict=True) if kept]).sum(0)


def reordered(facts: Facts, local: Local) -> Diagnosis | None:
    """The reference agrees, in every pass, once the microbatches of the inputs (in backward, of the
    cotangents) come in another order."""
    problem, passes = facts.posed.problems[0], facts.case.microbatches
    if not 1 < passes <= MOST_PASSES or facts.case.dp > 1 or facts.spec is None:
        return None
    kind, name = local.target.kind, local.target.name.partition("@")[0]
    if kind not in ("output", "loss", "input_grad", "param_grad"):
        return None
    side = "inputs" if kind in ("output", "loss") else "cotangents"
    seen = [
        local_of(facts, target, 0)
        for target in problem.targets
        if target.kind == kind and target.name in {at(name, m) for m in range(passes)}
    ]
    if not seen:
        return None  # a tensor inside
    given = problem.inputs if side == "inputs" else problem.cotangents
    for order in list(permutations(range(passes)))[1:]:
        moved = [given[i] for i in order]
        other = replace(problem, **{side: moved})  # type: ignore[arg-type]
        values = evaluate(facts.spec, facts.case, other)[0]
        if all(
            own is not None
            and all(_holds(own, rank, values[kind, own.target.name]) for rank in own.ranks)
            for own in seen
        ):
            message = f"{name_of(local)} is what the microbatches of the {side}, in the order "
            message += f"{', '.join(map(str, order))}, would give"
            return Diagnosis("shard-order", message, {"side": side, "order": list(order)})
    return None


def _holds(local: Local, rank: int, full: Tensor) -> bool:
    want = take(full, local.target.entry, case=local.case, rank=rank)
    return local.fits(local.actual[rank], rank, expected=want)
