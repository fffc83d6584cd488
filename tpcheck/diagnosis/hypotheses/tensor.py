"""Hypotheses about one wrong tensor, from what the ranks hold of it."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from tpcheck import placement
from tpcheck.bounds.noise import UNIT_ROUNDOFF
from tpcheck.diagnosis.evidence import Facts, Local, name_of
from tpcheck.verdict import CaseResult, Diagnosis, Mismatch


def zero(facts: Facts, local: Local) -> Diagnosis | None:
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


def scaled(facts: Facts, local: Local) -> Diagnosis | None:
    """actual = c × expected, one c for all ranks: summed too often, or averaged."""
    tp, wrong = local.case.tp, local.wrong()
    if not wrong or _terms_as_large(local):
        return None
    factors = {float(tp): "summed-twice", float(tp * tp): "summed-twice"}
    factors |= {1.0 / tp: "averaged-not-summed", 1.0 / (tp * tp): "averaged-not-summed"}
    passes = local.case.microbatches
    if local.target.kind == "param_grad":
        factors = {1.0 / passes: "averaged-not-summed", passes: "summed-twice"} | factors
    for factor, code in factors.items():
        if factor != 1 and all(local.fits(local.actual[r] / factor, r) for r in wrong):
            how = "world_size × " if code == "summed-twice" and factor == tp else f"{factor:g} × "
            message = f"{name_of(local)}: every element is {how}the reference"
            if factor in (passes, 1.0 / passes) and local.target.kind == "param_grad":
                message += f", which has {passes} microbatches"
            return Diagnosis(code, message, {"factor": factor, "ranks": wrong})
    return None


def _terms_as_large(local: Local) -> bool:
    """Whether replicas differ and add up to the reference: terms of its sum, by chance about as
    large as each other. What every rank scales alike differs by rounding at most, where each rank
    adds up in an order of its own."""
    if not local.alike():
        return False
    terms = torch.stack(list(local.actual.values()))
    rounding = len(terms) * UNIT_ROUNDOFF[local.target.dtype] * terms.abs().max()
    if bool(((terms - terms[0]).abs() <= rounding).all()):
        return False
    return local.fits(terms.sum(0), local.ranks[0])


def summed(facts: Facts, local: Local) -> Diagnosis | None:
    """The sum over the TP group, over another axis, or over the replicas, is the reference."""
    if len(local.ranks) < 2:
        return None
    entry, shape, case = local.target.entry, tuple(local.target.value.shape), local.case
    groups = placement.replicas(entry, shape, case=case)
    for axis in case.mesh:
        groups += placement.replicas(entry, shape, case=case, over=[axis])
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


def other_rank(facts: Facts, local: Local) -> Diagnosis | None:
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


def permuted(facts: Facts, local: Local) -> Diagnosis | None:
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


def bias(facts: Facts, local: Local) -> Diagnosis | None:
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


def lookups(facts: Facts, local: Local) -> Diagnosis | None:
    """Each wrong row of what was looked up is empty, another row of the table, or has one too
    many; each wrong row of the table's gradient is empty, or should be."""
    problem = facts.posed.problems[0]
    ids = [t for t in problem.inputs[0].values() if not t.is_floating_point()]
    tables = [p.double() for p in problem.params.values()]
    if not ids or len(tables) != 1 or tables[0].ndim != 2:
        return None
    width = tables[0].shape[1]
    if any(t.ndim == 0 or t.shape[-1] != width for t in local.expected.values()):
        return None  # no rows of the table: a loss, or a part along its other dim
    rows, held = 0, 0
    for rank in local.ranks:
        both = (local.actual[rank], local.expected[rank])
        actual, want = (t.reshape(-1, width) for t in both)
        held += len(actual)
        wrong = ((actual - want).abs() > 1e-9 * (1 + want.abs())).any(1)
        rows += int(wrong.sum())
        pairs = zip(actual[wrong], want[wrong], strict=True)
        if not all(_misread(local, got, should, tables[0]) for got, should in pairs):
            return None
    empty = all(not local.actual[r].any() for r in local.wrong())
    if not rows or (empty and rows == held > len(local.ranks)):
        return None  # everything is zero: a buffer rather than a range
    message = f"{name_of(local)}: {rows} of {held} rows are wrong, by token"
    return Diagnosis("vocab-mask", message, {"rows": rows})


def _misread(local: Local, actual: Tensor, want: Tensor, table: Tensor) -> bool:
    if not actual.any():
        return True
    if local.target.kind == "param_grad":
        return not want.any()
    near = 1e-2 if local.target.dtype in (torch.float16, torch.bfloat16) else 1e-5
    others = torch.cat([table, want + table])
    return bool(((others - actual).abs() <= near * table.abs().max()).all(1).any())


def one_rank_scaled(facts: Facts, local: Local) -> Diagnosis | None:
    """Some ranks hold c × the reference, the others the reference: what was done was not done
    by all."""
    wrong = local.wrong()
    if len(wrong) == len(local.ranks):
        return None
    other = None
    for rank in wrong:
        want, got = local.expected[rank], local.actual[rank]
        scale = float((got * want).sum() / (want * want).sum().clamp_min(1e-300))
        if abs(scale) < 1e-6 or not local.fits(got / scale, rank):
            return None
        # one element, or the gradient of one row, is a multiple of anything: in other modules, or
        # with other numbers, the factor must be the same
        if _in_other_modules(facts.found, local, rank, scale):
            continue
        other = other or facts.rerun(replace(facts.case, seed=facts.case.seed + 1))
        if other is None or not _scales(other, local, rank, scale):
            return None
    message = f"{name_of(local)} is scaled on ranks {wrong} and right on the others"
    return Diagnosis("replicas-differ", message, {"ranks": wrong})


def _in_other_modules(found: CaseResult, local: Local, rank: int, scale: float) -> bool:
    """Whether all wrong gradients of the rank, of more than one module, are off by this factor."""
    wrong = [m for m in found.mismatches if (m.kind, m.rank) == ("param_grad", rank)]
    several = len({m.tensor.rpartition(".")[0] for m in wrong}) > 1
    return local.target.kind == "param_grad" and several and all(_by(m, scale) for m in wrong)


def _scales(result: CaseResult, local: Local, rank: int, scale: float) -> bool:
    """Whether the same tensor of the rank is off by this factor in another case, too."""
    key = (local.target.kind, local.target.name, rank)
    return any((m.kind, m.tensor, m.rank) == key and _by(m, scale) for m in result.mismatches)


def _by(mismatch: Mismatch, scale: float) -> bool:
    """Whether it is off by this factor, and by much more than the factor is known to."""
    if mismatch.expected is None or mismatch.actual is None or mismatch.error is None:
        return False
    near = min(2 * (mismatch.bound or 0.0) + 1e-9 * abs(mismatch.actual), mismatch.error / 8)
    return abs(mismatch.actual - scale * mismatch.expected) <= near


def low_precision(facts: Facts, local: Local) -> Diagnosis | None:
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


def sum_of_pieces(facts: Facts, local: Local) -> Diagnosis | None:
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


def later_pass_only(facts: Facts, local: Local) -> Diagnosis | None:
    """The first microbatch's output is right and a later one, or the one after a step, is not."""
    if local.target.kind not in ("output", "loss") or "@" not in local.target.name:
        return None
    first = local.target.name.split("@")[0]
    if any((m.kind, m.tensor) == (local.target.kind, first) for m in facts.found.mismatches):
        return None
    message = f"{name_of(local)} is wrong and the first pass is right: something old is reused"
    return Diagnosis("stale-buffer", message, {})
