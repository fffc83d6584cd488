"""Hypotheses about wrong values: each one a statement that the ranks' tensors can refute.

`by_values` tries them on the first tensor that went wrong, the most specific ones first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from tpcheck import oracle, placement
from tpcheck.facts import ORDER, Facts, Local, gather, name_of, pass_of
from tpcheck.placement import take
from tpcheck.tolerance import UNIT_ROUNDOFF
from tpcheck.verdict import Diagnosis, Mismatch


def by_values(facts: Facts) -> Diagnosis | None:
    """The cause of the first wrong tensors: of the outputs where any is wrong, since what comes
    after follows from them, else of the gradients."""
    values = [m for m in facts.found.mismatches if m.kind in ORDER]
    values.sort(key=lambda m: (pass_of(m), ORDER.index(m.kind)))
    named = (_loaded(facts) or _changes(facts, values[0])) if values else None
    if named is None and facts.inside is not None:
        named = _first_that_fits(facts, facts.inside)
    if named is not None:
        return named
    # an output after the step follows from the gradients
    forward = [m for m in values if m.kind in ("output", "loss") and "@step" not in m.tensor]
    for mismatch in forward or values:
        named = _obvious(mismatch) or _tested(facts, mismatch)
        if named is not None:
            return named
    if values and all(m.kind == "replica" for m in values):
        first = values[0]
        message = f"{first.tensor}: ranks {first.detail['ranks']} hold different bits"
        return Diagnosis("replicas-differ", message, dict(first.detail))
    return None


def _tested(facts: Facts, mismatch: Mismatch) -> Diagnosis | None:
    local = gather(facts, mismatch)
    return None if local is None else _first_that_fits(facts, local)


def _first_that_fits(facts: Facts, local: Local) -> Diagnosis | None:
    if not local.wrong():
        return None
    return next(filter(None, (test(facts, local) for test in _HYPOTHESES)), None)


def _obvious(mismatch: Mismatch) -> Diagnosis | None:
    detail, name = mismatch.detail, f"{mismatch.kind} {mismatch.tensor}"
    if "reason" in detail and "None" in str(detail["reason"]):
        message = f"{name}: no gradient (None) on rank {mismatch.rank}"
        return Diagnosis("gradient-dropped", message, {"rank": mismatch.rank})
    if "shape" in detail:
        message = f"{name}: shape {detail['shape']}, expected {detail['expected_shape']}"
        return Diagnosis("wrong-placement", message, dict(detail))
    if detail.get("nan"):
        message = f"{name}: {detail['nan']} elements are NaN: memory that nobody wrote"
        return Diagnosis("unwritten-memory", message, {"nan": detail["nan"]})
    if "dtype" in detail:
        message = f"{name} is {detail['dtype']}, expected {detail['expected_dtype']}"
        return Diagnosis("precision-loss", message, dict(detail))
    return None


def _zero(facts: Facts, local: Local) -> Diagnosis | None:
    """Everything is zero where it should not be."""
    wrong = local.wrong()
    if wrong and all(bool((local.actual[r] == 0).all()) for r in wrong):
        if local.target.kind == "output":
            message = f"output is zero on ranks {wrong}: a buffer that nothing was written to"
            return Diagnosis("unwritten-memory", message, {"ranks": wrong})
        message = f"{name_of(local)} is zero on ranks {wrong}"
        ids = [t for t in facts.posed.problems[0].inputs[0].values() if not t.is_floating_point()]
        if ids and len(wrong) < len(local.ranks):
            return Diagnosis("vocab-mask", f"{message}: rows of tokens that were looked up", {})
        return Diagnosis("gradient-dropped", message, {"ranks": wrong})
    return None


def _scaled(facts: Facts, local: Local) -> Diagnosis | None:
    """actual = c × expected, one c for all ranks: summed too often, or averaged."""
    tp, wrong = local.case.tp, local.wrong()
    if not wrong:
        return None
    factors = {float(tp): "summed-twice", float(tp * tp): "summed-twice"}
    factors |= {1.0 / tp: "averaged-not-summed", 1.0 / (tp * tp): "averaged-not-summed"}
    for factor, code in factors.items():
        if all(local.fits(local.actual[r] / factor, r) for r in wrong):
            how = "world_size × " if code == "summed-twice" and factor == tp else f"{factor:g} × "
            message = f"{name_of(local)}: every element is {how}the reference"
            return Diagnosis(code, message, {"factor": factor, "ranks": wrong})
    return None


def _summed(facts: Facts, local: Local) -> Diagnosis | None:
    """The sum over the TP group, or over the replicas, is the reference."""
    if len(local.ranks) < 2:
        return None
    groups = placement.replicas(
        local.target.entry, tuple(local.target.value.shape), case=local.case
    )
    groups = [g for g in groups if set(g) <= set(local.ranks)]
    for ranks in groups:
        total = torch.stack([local.actual[r] for r in ranks]).sum(0)
        wrong = [r for r in ranks if r in local.wrong()]
        if wrong and local.fits(total, ranks[0]):
            if local.target.kind in ("param_grad", "param"):
                code, why = "partial-not-reduced", "its gradient needs a sum over them"
            else:
                code, why = "missing-all-reduce", "an all-reduce is missing"
            where = "backward" if local.target.kind != "output" else "forward"
            message = (
                f"{name_of(local)}: the sum over ranks {ranks} is the reference: {why} ({where})"
            )
            return Diagnosis(code, message, {"ranks": ranks})
    return None


def _other_rank(facts: Facts, local: Local) -> Diagnosis | None:
    """Each rank holds what another rank should hold."""
    wrong = local.wrong()
    found = {}
    for rank in wrong:
        for other in local.ranks:
            if (
                other != rank
                and bool(local.actual[rank].any())
                and local.fits(local.actual[rank], rank, expected=local.expected[other])
            ):
                found[rank] = other
                break
    if wrong and len(found) == len(wrong):
        pairs = ", ".join(f"rank {r} has rank {o}'s" for r, o in found.items())
        evidence = {"map": {str(r): o for r, o in found.items()}}
        return Diagnosis("shard-order", f"{name_of(local)}: {pairs} part", evidence)
    return None


def _permuted(facts: Facts, local: Local) -> Diagnosis | None:
    """Rows along some dim are rows of the reference, on this rank or another, in another order."""
    for rank in local.wrong():
        for dim in range(local.target.value.ndim):
            found = _row_map(local, rank, dim)
            if found is not None and found != sorted(found):
                message = f"{name_of(local)}: dim {dim} of rank {rank} holds the rows {found[:12]}"
                return Diagnosis("shard-order", message, {"dim": dim, "rows": found})
    return None


def _row_map(local: Local, rank: int, dim: int) -> list[int] | None:
    """For each row of the rank's tensor along `dim`, the row that it equals of all ranks'
    expected slices one after the other; None if one has none."""
    actual = local.actual[rank]
    shape = [n for d, n in enumerate(actual.shape) if d != dim]
    owners = [rank, *(r for r in local.ranks if r != rank)]
    owners = [
        r for r in owners if [n for d, n in enumerate(local.expected[r].shape) if d != dim] == shape
    ]
    if not actual.numel() or actual.shape[dim] > 256:
        return None
    slack = 2 * local.target.spread.elementwise_limit(actual.numel())
    rows = actual.movedim(dim, 0).reshape(actual.shape[dim], -1)
    wanted, noise = (
        torch.cat([t[r].movedim(dim, 0).reshape(t[r].shape[dim], -1) for r in owners])
        for t in (local.expected, local.sigma)
    )
    bound = slack * noise + 1e-13 * wanted.abs().max()
    out = []
    for row in rows:
        hits = ((row - wanted).abs() <= bound).all(1).nonzero().flatten().tolist()
        if not hits:
            return None
        out.append(int(hits[0]))
    return out


def _bias(facts: Facts, local: Local) -> Diagnosis | None:
    """actual − expected is a multiple of one parameter vector, the same in every row."""
    if local.target.kind != "output":
        return None
    params = facts.posed.problems[0].params
    for rank in local.wrong():
        gap = local.actual[rank] - local.expected[rank]
        gap = gap.reshape(-1, gap.shape[-1]) if gap.ndim else gap.reshape(1, 1)
        rows = [i for i in range(gap.shape[0]) if bool((gap[i].abs() > 1e-9).any())]
        for name, vector in params.items():
            if vector.ndim != 1 or vector.shape != gap.shape[-1:] or not rows:
                continue
            v = vector.double()
            factor = float((gap[rows] @ v).mean() / (v @ v))
            near = (gap[rows] - factor * v).abs().max() <= 0.05 * v.abs().max()
            whole = abs(factor - round(factor)) < 0.05 and round(factor) != 0
            if bool(near) and whole:
                message = (
                    f"output is off by {factor:+.3g} × {name} on rank {rank}: "
                    "the bias must be added once, after the sum"
                )
                return Diagnosis("bias-per-rank", message, {"factor": factor, "bias": name})
    return None


def _over_dp(facts: Facts, local: Local) -> Diagnosis | None:
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
    alone = oracle.pose(replace(spec, dp_gradients="local"), facts.case)
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


def _other_data_group(facts: Facts, local: Local) -> Diagnosis | None:
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


def _only_with_dp(facts: Facts, local: Local) -> Diagnosis | None:
    """The same case without the dp axis is right."""
    if facts.case.dp < 2:
        return None
    alone = facts.rerun(replace(facts.case, mesh={"tp": facts.case.tp}))
    if alone is not None and not alone.mismatches:
        message = (
            f"{name_of(local)} is wrong on a {facts.case.dp} × {facts.case.tp} mesh and right on "
            f"tp={facts.case.tp} alone: a collective runs over the wrong group"
        )
        return Diagnosis("wrong-group", message, {"mesh": dict(facts.case.mesh)})
    return None


def _tokens(facts: Facts, local: Local) -> Diagnosis | None:
    """Only some tokens' rows are wrong: the vocabulary range or its mask."""
    problem = facts.posed.problems[0]
    ids = next((t for t in problem.inputs[0].values() if not t.is_floating_point()), None)
    if ids is None or not any(n.endswith("weight") for n in problem.params):
        return None
    tables = [p for p in problem.params.values() if p.ndim == 2]
    if len(problem.params) != 1 or not tables:
        return None
    rank = next(iter(local.wrong()), None)
    if rank is None:
        return None
    gap = (local.actual[rank] - local.expected[rank]).abs() > 0
    gap = gap.reshape(-1, gap.shape[-1])
    rows = int(gap.any(1).sum())
    if rows == gap.shape[0]:
        return None
    message = f"{name_of(local)}: {rows} of {gap.shape[0]} rows are wrong, by token"
    return Diagnosis("vocab-mask", message, {"rows": rows})


def _right_in_float64(facts: Facts, local: Local) -> Diagnosis | None:
    """The same case in float64 is right: only precision is lost."""
    if facts.case.dtype == "float64":
        return None
    exact = facts.rerun(replace(facts.case, dtype="float64"))
    if exact is not None and not exact.mismatches:
        worst = max((m.error or 0) / (m.bound or 1) for m in facts.found.mismatches)
        message = f"{name_of(local)} is right in float64 and off by {worst:.3g} × its bound here"
        return Diagnosis("precision-loss", message, {"error_over_bound": worst})
    return None


def _changes(facts: Facts, mismatch: Mismatch) -> Diagnosis | None:
    """The same case gave other values the second time."""
    first = {(m.kind, m.tensor, m.rank): str(m.actual) for m in facts.found.mismatches}
    second = {(m.kind, m.tensor, m.rank): str(m.actual) for m in facts.again.mismatches}
    if set(first) != set(second) or any(first[k] != second[k] for k in first):
        message = (
            f"{mismatch.kind} {mismatch.tensor} differs from run to run: read before it is written"
        )
        return Diagnosis("stale-buffer", message, {})
    return None


def _heads(facts: Facts, local: Local) -> Diagnosis | None:
    """With as many K/V heads as query heads the case is right: their map is wrong."""
    dims = facts.case.dims
    if local.target.kind != "output":
        return None
    if "kv_heads" not in dims or "heads" not in dims or dims["heads"] == dims["kv_heads"]:
        return None
    other = facts.rerun(replace(facts.case, dims={**dims, "kv_heads": dims["heads"]}))
    if other is not None and not other.mismatches:
        message = (
            f"{name_of(local)} is wrong with {dims['heads']} query, {dims['kv_heads']} K/V heads "
            f"and right with {dims['heads']} of each"
        )
        return Diagnosis("kv-head-map", message, {"heads": dims["heads"], "kv": dims["kv_heads"]})
    return None


# ---- hypotheses that need more than one tensor


def _loaded(facts: Facts) -> Diagnosis | None:
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


def _later_pass_only(facts: Facts, local: Local) -> Diagnosis | None:
    """The first microbatch's output is right and a later one, or the one after a step, is not."""
    if local.target.kind not in ("output", "loss") or "@" not in local.target.name:
        return None
    first = local.target.name.split("@")[0]
    if any((m.kind, m.tensor) == (local.target.kind, first) for m in facts.found.mismatches):
        return None
    message = f"{name_of(local)} is wrong and the first pass is right: something old is reused"
    return Diagnosis("stale-buffer", message, {})


def _accumulated(facts: Facts, local: Local) -> Diagnosis | None:
    """The gap is a multiple of the first microbatch's gradient."""
    case = facts.case
    if local.target.kind != "param_grad" or case.microbatches < 2 or facts.spec is None:
        return None
    first = oracle.pose(facts.spec, replace(case, microbatches=1, step=False))
    d = case.coordinates(local.ranks[0]).get("dp", 0)
    key = (local.target.kind, local.target.name)
    value = next(t.value for t in first.problems[d].targets if (t.kind, t.name) == key)
    for rank in local.wrong():
        one = take(value, local.target.entry, case=case, rank=rank)
        for factor in (-1.0, case.tp - 1.0):
            if local.fits(local.actual[rank], rank, expected=local.expected[rank] + factor * one):
                code = "gradient-dropped" if factor < 0 else "summed-twice"
                what = "missing from" if factor < 0 else f"{case.tp} times in"
                message = f"{name_of(local)}: the first microbatch is {what} the sum"
                return Diagnosis(code, message, {"factor": factor})
    return None


def _residual(facts: Facts, local: Local) -> Diagnosis | None:
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


def _sum_of_pieces(facts: Facts, local: Local) -> Diagnosis | None:
    """What one rank holds is the sum of different pieces, which should have stayed apart."""
    if local.target.kind != "param_grad":
        return None
    pieces: list[Tensor] = []
    for rank in local.ranks:
        want = local.expected[rank]
        if not any(want.shape == p.shape and torch.equal(want, p) for p in pieces):
            pieces.append(want)
    if len(pieces) < 2 or any(p.shape != pieces[0].shape for p in pieces):
        return None
    total = torch.stack(pieces).sum(0)
    for rank in local.wrong():
        if local.fits(local.actual[rank], rank, expected=total):
            message = (
                f"{name_of(local)} of rank {rank} is the sum of all ranks' different pieces: "
                "reduced although sharded, or over too large a group"
            )
            return Diagnosis("summed-twice", message, {"rank": rank})
    return None


def _one_rank_scaled(facts: Facts, local: Local) -> Diagnosis | None:
    """Some ranks hold c × the reference, the others the reference: what was done was not done
    by all."""
    wrong = local.wrong()
    if len(wrong) == len(local.ranks):
        return None
    for rank in wrong:
        want, got = local.expected[rank], local.actual[rank]
        scale = float((got * want).sum() / (want * want).sum().clamp_min(1e-300))
        if abs(scale) < 1e-6 or not local.fits(got / scale, rank):
            return None
    message = f"{name_of(local)} is scaled on ranks {wrong} and right on the others"
    return Diagnosis("replicas-differ", message, {"ranks": wrong})


def _overwritten(facts: Facts, local: Local) -> Diagnosis | None:
    """A collective wrote in place into a tensor that backward still needs."""
    if local.target.kind not in ("input_grad", "param_grad"):
        return None
    events = [e for rank in facts.again.trace for e in rank if e.get("overwrites")]
    if not events:
        return None
    where = events[0]["where"]
    message = f"{events[0]['op']} at {where} overwrites a tensor that autograd has saved"
    return Diagnosis("stale-buffer", message, {"where": where})


def _low_precision(facts: Facts, local: Local) -> Diagnosis | None:
    """All values are a lower dtype's, and off by its rounding."""
    rank = local.wrong()[0]
    want, got = local.expected[rank], local.actual[rank]
    if not bool(got.isfinite().all()) or float(want.norm()) == 0.0:
        return None
    off = float((got - want).norm() / want.norm())
    own = UNIT_ROUNDOFF[local.target.dtype]
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        u = UNIT_ROUNDOFF[dtype]
        exact = bool((got.to(dtype).double() == got).all())
        if u > own and exact and off < 8 * u:
            bits = -math.log2(off)
            name = str(dtype).removeprefix("torch.")
            message = (
                f"{name_of(local)} agrees to {bits:.1f} bits and every value is one of {name}'s"
            )
            return Diagnosis("precision-loss", message, {"relative_error": off})
    return None


def _missing_collective(facts: Facts, local: Local) -> Diagnosis | None:
    """The trace has no sum, or no gather, where the budget has one."""
    if facts.spec is None or facts.spec.budget is None or facts.case.tp < 2:
        return None
    phase = "forward" if local.target.kind in ("output", "loss") else "backward"
    budget = facts.spec.budget(facts.case)
    due = {op for op, n in (budget.forward if phase == "forward" else budget.backward).items() if n}
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


_HYPOTHESES: tuple[Callable[[Facts, Local], Diagnosis | None], ...] = (
    _later_pass_only,
    _bias,
    _over_dp,
    _other_data_group,
    _scaled,
    _summed,
    _sum_of_pieces,
    _accumulated,
    _residual,
    _other_rank,
    _permuted,
    _tokens,
    _zero,
    _one_rank_scaled,
    _only_with_dp,
    _overwritten,
    _heads,
    _right_in_float64,
    _low_precision,
    _missing_collective,
)
