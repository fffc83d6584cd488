"""Hypotheses that need more than the wrong tensor: what was loaded, other tensors of the case, the
trace."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tpcheck.diagnosis.evidence import Facts, Local, local_of, name_of
from tpcheck.oracle.pose import pose
from tpcheck.placement import Replicate, by_axis, take
from tpcheck.tensors.boundaries import Border
from tpcheck.verdict import Diagnosis


def loaded(facts: Facts) -> Diagnosis | None:
    """What the candidate's own loader left in the parameters, against the layout's slices."""
    for name, full in facts.posed.problems[0].params.items():
        entry = facts.posed.params[name]
        for rank, dump in sorted(facts.dumps.items()):
            got = dump.get(f"loaded/{name}")
            want = take(full, entry, case=facts.case, rank=rank)
            if got is None or got.shape != want.shape or bool((got == want).all()):
                continue
            return _misloaded(facts, name, got.double(), want.double(), full.double(), rank)
    return None


def _misloaded(
    facts: Facts, name: str, got: Tensor, want: Tensor, full: Tensor, rank: int
) -> Diagnosis | None:
    what = f"{name} as loaded on rank {rank}"
    if bool(got.isnan().any()):
        return Diagnosis("unwritten-memory", f"{what} has elements that nobody wrote", {})
    if float((got - want).norm()) < 0.02 * float(want.norm()):
        return Diagnosis("precision-loss", f"{what} was rounded to a lower precision", {})
    projection = any(part in name for part in ("q_proj", "k_proj", "v_proj"))
    code = "kv-head-map" if projection else "shard-order"
    for dim in range(full.ndim):
        chosen = _rows_of(got, full, dim)
        if chosen is not None:
            message = f"{what} holds the rows {chosen[:12]} of dim {dim}"
            if not projection and len(set(chosen)) < len(set(_rows_of(want, full, dim) or chosen)):
                code, message = "wrong-placement", f"{message}, some of them more than once"
            return Diagnosis(code, message, {"dim": dim, "rows": chosen})
    if full.ndim > 1 and set(got.flatten().tolist()) <= set(full.flatten().tolist()):
        message = f"{what} holds elements of the full weight, cut or laid out otherwise"
        return Diagnosis("wrong-placement", message, {"rank": rank})
    others = [t.double() for t in facts.posed.problems[0].params.values() if t.ndim == full.ndim]
    others = [t for t in others if t.shape[1:] == full.shape[1:]]
    if _rows_of(got, torch.cat(others), 0) is not None:
        return Diagnosis(code, f"{what} holds rows of another parameter of the fused weight", {})
    whole = [dump[f"loaded/{name}"] for dump in facts.dumps.values() if f"loaded/{name}" in dump]
    alike = all(torch.equal(t, whole[0]) for t in whole)
    if got.shape == full.shape and not alike:
        message = f"{what} differs from other ranks', which hold the same parameter"
        return Diagnosis("replicas-differ", message, {"rank": rank})
    return None


def _rows_of(got: Tensor, full: Tensor, dim: int) -> list[int] | None:
    """Which row of `full` along `dim` each row of `got` is, to the bit; None if one is none."""
    pool = full.movedim(dim, 0).reshape(full.shape[dim], -1)
    rows = got.movedim(dim, 0).reshape(got.shape[dim], -1)
    if rows.shape[1] != pool.shape[1]:
        return None
    hits = [(row == pool).all(1).nonzero().flatten().tolist() for row in rows]
    return [h[0] for h in hits] if all(hits) else None


def tied(facts: Facts, local: Local) -> Diagnosis | None:
    """Of a tensor with several names, on ranks of different stages: what they hold adds up to the
    reference, or to R times it."""
    params, name = facts.posed.problems[0].params, local.target.name
    if local.target.kind not in ("param_grad", "param") or name not in params:
        return None
    others = [n for n, tensor in params.items() if tensor is params[name] and n != name]
    rank = local.ranks[0]
    d = facts.case.coordinates(rank).get("dp", 0)
    targets = {t.name: t for t in facts.posed.problems[d].targets if t.kind == local.target.kind}
    same = [local_of(facts, targets[n], d) for n in others if n in targets]
    if not same or any(other is None or rank in other.ranks for other in same):
        return None
    total = local.actual[rank] + sum(other.actual[other.ranks[0]] for other in same if other)
    names = " and ".join([name, *others])
    if local.fits(total, rank):
        message = f"{names} are one tensor: its gradient is the sum of theirs"
        return Diagnosis("partial-not-reduced", message, {"names": [name, *others]})
    for axis, size in facts.case.mesh.items():
        alike = by_axis(local.target.entry).get(axis, Replicate()) == Replicate()
        if size > 1 and alike and local.fits(total / size, rank):
            message = f"{names} are one tensor, whose gradient is summed over {axis}, not over them"
            return Diagnosis("wrong-group", message, {"names": [name, *others], "axis": axis})
    return None


def partial_branch(facts: Facts, local: Local) -> Diagnosis | None:
    """The sum over the ranks is too large by R − 1 times what all modules but one send back: that
    one's gradient is not summed over the ranks, the others' are."""
    if local.target.kind != "input_grad" or not local.alike():
        return None
    rank, tp = local.ranks[0], local.case.tp
    want, total = local.expected[rank], torch.stack(list(local.actual.values())).sum(0)
    d = facts.case.coordinates(rank).get("dp", 0)
    for target in facts.posed.problems[d].borders:
        border = Border.of(target.name)
        if (border.phase, border.side) != ("backward", "in") or target.value.shape != want.shape:
            continue
        rest = want - target.value
        if bool(rest.any()) and local.fits(total, rank, expected=want + (tp - 1) * rest):
            message = (
                f"{name_of(local)}: what {border.module} adds to it is not summed over the ranks"
            )
            return Diagnosis(
                "missing-all-reduce", f"{message} (backward)", {"branch": border.module}
            )
    return None


def residual(facts: Facts, local: Local) -> Diagnosis | None:
    """The gap is R − 1 times an input (or, in backward, a cotangent): it was summed over ranks."""
    case, problem = facts.case, facts.posed.problems[0]
    if local.target.kind == "output":
        given, entries = problem.inputs[0], facts.posed.inputs
    elif local.target.kind == "input_grad":
        given, entries = problem.cotangents[0], facts.posed.outputs
    else:
        return None
    if case.dp > 1 or "@" in local.target.name:
        return None
    for name, full in given.items():
        for rank in local.wrong():
            part = take(full, entries[name], case=case, rank=rank).double()
            if part.shape != local.expected[rank].shape:
                continue
            want = local.expected[rank] + (case.tp - 1) * part
            if local.fits(local.actual[rank], rank, expected=want):
                message = f"{name_of(local)} is off by {case.tp - 1} × {name}: it joins every term"
                return Diagnosis("summed-twice", f"{message} of the sum", {"tensor": name})
    return None


def over_dp(facts: Facts, local: Local) -> Diagnosis | None:
    """A gradient that the spec wants combined over dp: summed for averaged, the other way round,
    or that of this rank's own data."""
    dp, spec = facts.case.dp, facts.spec
    if dp < 2 or not facts.posed.shared or local.target.kind != "param_grad" or spec is None:
        return None
    wrong, name = local.wrong(), name_of(local)
    for factor, code, how in (
        (dp, "summed-twice", f"{dp} × the reference: the sum over dp, or divided once too few"),
        (1 / dp, "averaged-not-summed", f"1/{dp} of the reference: averaged over dp once more"),
    ):
        if all(local.fits(local.actual[r] / factor, r) for r in wrong):
            return Diagnosis(code, f"{name} is {how}", {"factor": factor, "ranks": wrong})
    alone = pose(replace(spec, dp_gradients="local"), facts.case)
    for rank in wrong:
        d = facts.case.coordinates(rank).get("dp", 0)
        own = next(
            t.value
            for t in alone.problems[d].targets
            if (t.kind, t.name) == (local.target.kind, local.target.name)
        )
        want = take(own, local.target.entry, case=facts.case, rank=rank)
        if not any(local.fits(local.actual[rank] * f, rank, expected=want) for f in (1, dp)):
            return None
    message = f"{name} comes from the data of each dp rank alone: the sum over dp is missing"
    return Diagnosis("partial-not-reduced", message, {"ranks": wrong})


def other_data_group(facts: Facts, local: Local) -> Diagnosis | None:
    """The sum over the dp groups' references is what this rank has: a group too large."""
    case = facts.case
    if case.dp < 2:
        return None
    same = [
        t.value
        for p in facts.posed.problems
        for t in p.targets
        if (t.kind, t.name) == (local.target.kind, local.target.name)
    ]
    if not same:  # a tensor inside: only this group's reference of it is known
        return None
    total = torch.stack(same).sum(0)
    for rank in local.wrong():
        want = take(total, local.target.entry, case=case, rank=rank)
        if local.fits(local.actual[rank], rank, expected=want):
            message = (
                f"{name_of(local)} is the sum over the data of all {case.dp} dp groups: "
                "a collective runs over the world instead of the TP group"
            )
            return Diagnosis("wrong-group", message, {"rank": rank})
    return None


def overwritten(facts: Facts, local: Local) -> Diagnosis | None:
    """A tensor that backward still needs was written over: by a collective, or by anything."""
    if local.target.kind not in ("input_grad", "param_grad"):
        return None
    for event in (e for rank in facts.again.trace for e in rank if e.get("overwrites")):
        message = f"{event['op']} at {event['where']} overwrites a tensor that autograd has saved"
        return Diagnosis("stale-buffer", message, {"where": event["where"]})
    saved = sorted(
        {k for dump in facts.dumps.values() for k in dump if k.startswith("overwritten/")}
    )
    if not saved:
        return None
    where = saved[0].partition("/")[2]
    message = f"what was saved for backward at {where} was written over before backward read it"
    return Diagnosis("stale-buffer", message, {"where": where})


def common_factor(facts: Facts) -> Diagnosis | None:
    """Every wrong gradient, at the element where it is furthest off, is the same multiple of the
    reference. For parameters whose live placement is another than the layout's (cut over dp, too),
    so that their slices can't be laid side by side."""
    wrong = [m for m in facts.found.mismatches if m.kind == "param_grad" and m.expected]
    ratios = [(m.actual or 0.0) / m.expected for m in wrong if m.expected]
    if len({m.tensor for m in wrong}) < 3 or len({m.expected for m in wrong}) < 6:
        return None
    case = facts.case
    near = 1e-6 if case.dtype == "float64" else 1e-3
    degrees = {case.tp: "tp", case.dp: "dp", case.world_size: "the world"}
    for degree, axis in degrees.items():
        for factor, code in ((degree, "summed-twice"), (1 / degree, "averaged-not-summed")):
            if degree > 1 and all(abs(r - factor) <= near * factor for r in ratios):
                message = (
                    f"every parameter's gradient is {factor:g} × the reference, as over {axis}"
                )
                return Diagnosis(code, message, {"factor": factor, "tensors": len(wrong)})
    return None


def missing_collective(facts: Facts, local: Local) -> Diagnosis | None:
    """The trace has no sum, or no gather, where the budget has one."""
    if facts.spec is None or facts.spec.budget is None or facts.case.tp < 2:
        return None
    phase = "forward" if local.target.kind in ("output", "loss") else "backward"
    budget = facts.spec.budget(facts.case)
    volumes = budget.forward if phase == "forward" else budget.backward
    due = {op for op, n in (volumes or {}).items() if n}
    ran = {e["op"] for rank in facts.found.trace for e in rank if e["phase"] == phase}
    sums = {"all_reduce", "reduce_scatter"}
    if due & sums and not ran & sums:
        code = "partial-not-reduced" if local.target.kind == "param_grad" else "missing-all-reduce"
        message = f"{name_of(local)}: {phase} ran no {' or '.join(sorted(due & sums))}"
        return Diagnosis(code, message, {"due": sorted(due), "ran": sorted(ran)})
    if "all_gather" in due and "all_gather" not in ran and phase == "backward":
        gathered = local.target.kind == "param_grad"
        code = "partial-not-reduced" if gathered else "missing-all-reduce"
        message = f"{name_of(local)}: backward ran no all_gather: only this rank's rows count"
        return Diagnosis(code, message, {"due": sorted(due), "ran": sorted(ran)})
    return None
