"""From evidence to a named cause: hypotheses are tested against the ranks' tensors.

Each hypothesis is a statement that the data can refute (does actual × 1/R fit? does the sum over
the ranks fit? is it another rank's slice?). The first that fits, in order of how specific it is,
names the cause; `unclassified` says that none did.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpcheck import placement
from tpcheck.case import Case
from tpcheck.oracle import Posed, Target
from tpcheck.placement import Partial, Replicate, by_axis, take
from tpcheck.tolerance import elementwise_limit
from tpcheck.verdict import CaseResult, Diagnosis, Mismatch

CODES = {
    "missing-all-reduce": "a sum over the ranks is missing",
    "summed-twice": "something is summed over the ranks more often than it should be",
    "averaged-not-summed": "a mean over the ranks stands where a sum belongs",
    "partial-not-reduced": "a gradient holds only this rank's part of the sum",
    "replicas-differ": "ranks that must hold the same tensor hold different ones",
    "shard-order": "pieces are in the wrong order, or from the wrong rank",
    "kv-head-map": "query heads meet the wrong K/V head",
    "bias-per-rank": "a bias is added on every rank before the sum, or on some ranks only",
    "gradient-dropped": "a gradient does not arrive",
    "wrong-group": "a collective runs over the wrong group of ranks",
    "vocab-mask": "tokens at the border of a rank's vocabulary range go wrong",
    "rng-not-coordinated": "random masks agree where they must differ, or differ where not",
    "scale-not-shared": "a scale is computed from one shard where the whole is meant",
    "precision-loss": "the computation is right, but in too low a precision",
    "unwritten-memory": "a buffer is read where nobody wrote it",
    "stale-buffer": "a buffer is read too early, or was overwritten",
    "plan-entry-unmatched": "names of the plan or the reference match nothing in the candidate",
    "parameter-not-sharded": "a parameter that should be sharded is held whole",
    "wrong-placement": "a tensor is split along another dim, or not as the layout says",
    "extra-communication": "more is communicated than the budget allows",
    "collective-mismatch": "ranks entered different collectives",
    "deadlock": "ranks wait for one another",
    "rank-crash": "a rank raised, or died",
    "order-of-parallelisms": "parallelisms were applied in an order that breaks one of them",
    "tied-weights-split": "weights that are tied were split apart",
    "unclassified": "none of the known causes fits",
}


@dataclass
class Facts:
    """All that is known of a failing case.

    Args:
        posed: the case with its expected values.
        found: the result that is to be explained.
        again: the same case run once more, with `dumps` kept: rank → `kind/name` → tensor.
        rerun: runs another case of the same check.
    """

    posed: Posed
    found: CaseResult
    again: CaseResult
    dumps: dict[int, dict[str, Tensor]]
    rerun: Callable[[Case], CaseResult | None]

    @property
    def case(self) -> Case:
        return self.posed.case

    def target(self, mismatch: Mismatch, d: int = 0) -> Target | None:
        for target in self.posed.problems[d].targets:
            if (target.kind, target.name) == (mismatch.kind, mismatch.tensor):
                return target
        return None


@dataclass
class Local:
    """One failing tensor on the ranks of one TP group: actual and expected slices, float64."""

    target: Target
    case: Case
    ranks: list[int]
    actual: dict[int, Tensor]
    expected: dict[int, Tensor]
    sigma: dict[int, Tensor]

    def fits(self, value: Tensor, rank: int, *, expected: Tensor | None = None) -> bool:
        """Whether `value` is what the reference expects of `rank`, within (doubled) bounds."""
        want = self.expected[rank] if expected is None else expected
        if value.shape != want.shape:
            return False
        slack = 2 * elementwise_limit(want.numel(), self.target.spread.samples)
        sigma = self.sigma[rank] if expected is None else self.target.spread.sigma.max()
        scale = want.abs().max() if want.numel() else torch.tensor(0.0)
        return bool(((value - want).abs() <= slack * sigma + 1e-13 * scale).all())

    def wrong(self) -> list[int]:
        return [r for r in self.ranks if not self.fits(self.actual[r], r)]


ORDER = ("output", "loss", "input_grad", "param_grad", "param", "grad_norm", "replica")


def first_divergence(result: CaseResult) -> str | None:
    """The first tensor to go wrong, in the order in which they are computed."""
    values = [m for m in result.mismatches if m.kind in ORDER]
    if not values:
        return None
    first = min(values, key=lambda m: (_pass(m), ORDER.index(m.kind)))
    phase = {"output": "forward", "loss": "forward", "param": "after the step"}
    return f"{first.tensor} ({phase.get(first.kind, 'backward')})"


def _pass(mismatch: Mismatch) -> int:
    suffix = mismatch.tensor.partition("@")[2]
    return 1000 if suffix == "step" else int(suffix or 0)


def diagnose(facts: Facts) -> Diagnosis:
    """The most specific cause that fits the evidence."""
    return _structural(facts) or _by_values(facts) or _fallback(facts)


# ---- what needs no values


def _structural(facts: Facts) -> Diagnosis | None:
    causes = [m for m in facts.found.mismatches if not m.detail.get("consequence")]
    by_kind: dict[str, list[Mismatch]] = {}
    for mismatch in causes:
        by_kind.setdefault(mismatch.kind, []).append(mismatch)
    if "crash" in by_kind:
        first = by_kind["crash"][0]
        how = first.detail.get("reason", "gone")
        return Diagnosis(
            "rank-crash", f"rank {first.rank} died: {how}", {"rank": first.rank, "how": how}
        )
    if "communication_bytes" in by_kind:
        return _communication(by_kind["communication_bytes"])
    if "collective" in by_kind:
        first = by_kind["collective"][0]
        if "witness" in first.detail:
            return Diagnosis("unclassified", f"the path was not taken: {first.detail['reason']}")
        reason = first.detail.get("reason", "the ranks' sequences of collectives differ")
        return Diagnosis("collective-mismatch", reason, {"rank": first.rank})
    if "hang" in by_kind:
        return _hang(by_kind["hang"])
    if "exception" in by_kind:
        return _exception(facts, by_kind["exception"])
    if "sharding" in by_kind:
        return _sharding(by_kind["sharding"])
    return None


def _communication(found: list[Mismatch]) -> Diagnosis:
    first = found[0]
    ran = ", ".join(f"{count} × {op}" for op, count in first.detail["ran"].items())
    message = (
        f"{first.detail['phase']} sends {first.actual:g} elements a rank, the budget is "
        f"{first.expected:g} ({ran} in {first.detail['passes']} microbatches)"
    )
    return Diagnosis("extra-communication", message, dict(first.detail))


def _hang(found: list[Mismatch]) -> Diagnosis:
    first = found[0]
    reason = str(first.detail.get("reason", ""))
    code = "collective-mismatch" if "finished without" in reason else "deadlock"
    waiting = {str(m.rank): (m.detail.get("last") or ["nothing"])[-1] for m in found}
    message = f"rank {first.rank} {reason}: {(first.detail.get('last') or ['?'])[-1]}"
    return Diagnosis(code, message, {"waiting_in": waiting})


def _exception(facts: Facts, found: list[Mismatch]) -> Diagnosis:
    first = found[0]
    ranks = sorted(m.rank for m in found)
    who = "every rank" if len(ranks) == facts.case.world_size else f"rank {ranks[0]}"
    what = f"{first.detail.get('type')}: {first.detail.get('reason')}"
    message = f"{who} raised {what} (in {first.detail.get('phase')})"
    return Diagnosis("rank-crash", message, {"ranks": ranks})


def _sharding(found: list[Mismatch]) -> Diagnosis:
    codes = {
        "whole": "parameter-not-sharded",
        "storage": "parameter-not-sharded",
        "none": "parameter-not-sharded",
        "shape": "wrong-placement",
        "placement": "wrong-placement",
        "missing": "plan-entry-unmatched",
        "unexpected": "plan-entry-unmatched",
    }
    first = found[0]
    fault = str(first.detail["fault"])
    names = sorted({m.tensor for m in found})
    has, wants = first.detail.get("shape"), first.detail.get("expected_shape")
    message = {
        "whole": f"{', '.join(names)}: held whole {has}, the layout shards it {wants}",
        "storage": f"{', '.join(names)}: a view of the whole tensor, which stays in memory",
        "shape": f"{names[0]} has the local shape {has}, the layout says {wants}",
        "placement": f"{names[0]}: {first.detail.get('placement')} is not the layout's "
        f"{first.detail.get('expected_placement')}",
    }.get(fault, str(first.detail.get("reason")))
    return Diagnosis(codes[fault], message, {"tensors": names})


# ---- what the tensors say


def _by_values(facts: Facts) -> Diagnosis | None:
    values = [m for m in facts.found.mismatches if m.kind in ORDER]
    for mismatch in sorted(values, key=lambda m: (_pass(m), ORDER.index(m.kind))):
        named = _obvious(mismatch)
        if named:
            return named
        local = _gather(facts, mismatch)
        if local is None:
            continue
        for hypothesis in _HYPOTHESES:
            named = hypothesis(facts, local)
            if named is not None:
                return named
    if values and all(m.kind == "replica" for m in values):
        first = values[0]
        message = f"{first.tensor}: ranks {first.detail['ranks']} hold different bits"
        return Diagnosis("replicas-differ", message, dict(first.detail))
    return None


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


def _gather(facts: Facts, mismatch: Mismatch) -> Local | None:
    """The failing tensor on the TP group of the rank that saw it."""
    case = facts.case
    d = case.coordinates(mismatch.rank).get("dp", 0)
    target = facts.target(mismatch, d)
    if target is None:
        return None
    key = f"{target.kind}/{target.name}"
    ranks = [r for r in range(case.world_size) if case.coordinates(r).get("dp", 0) == d]
    if not all(key in facts.dumps.get(r, {}) for r in ranks):
        return None
    entry = {
        axis: Replicate() if isinstance(own, Partial) else own
        for axis, own in by_axis(target.entry).items()
    }
    cut = {r: take(target.value, entry, case=case, rank=r) for r in ranks}
    noise = {r: take(target.spread.sigma, entry, case=case, rank=r) for r in ranks}
    actual = {r: facts.dumps[r][key].double() for r in ranks}
    if any(actual[r].shape != cut[r].shape for r in ranks):
        return None
    return Local(target, case, ranks, actual, cut, noise)


def _name(local: Local) -> str:
    return f"{local.target.kind} {local.target.name}"


def _zero(facts: Facts, local: Local) -> Diagnosis | None:
    """Everything is zero where it should not be."""
    wrong = local.wrong()
    if wrong and all(bool((local.actual[r] == 0).all()) for r in wrong):
        if local.target.kind == "output":
            return None
        message = f"{_name(local)} is zero on ranks {wrong}"
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
            message = f"{_name(local)}: every element is {how}the reference"
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
                f"{_name(local)}: the sum over ranks {ranks} is the reference: {why} ({where})"
            )
            return Diagnosis(code, message, {"ranks": ranks})
    return None


def _other_rank(facts: Facts, local: Local) -> Diagnosis | None:
    """Each rank holds what another rank should hold."""
    wrong = local.wrong()
    found = {}
    for rank in wrong:
        for other in local.ranks:
            if other != rank and local.fits(
                local.actual[rank], rank, expected=local.expected[other]
            ):
                found[rank] = other
                break
    if wrong and len(found) == len(wrong):
        pairs = ", ".join(f"rank {r} has rank {o}'s" for r, o in found.items())
        evidence = {"map": {str(r): o for r, o in found.items()}}
        return Diagnosis("shard-order", f"{_name(local)}: {pairs} part", evidence)
    return None


def _permuted(facts: Facts, local: Local) -> Diagnosis | None:
    """Rows along some dim are the full reference's rows, in another order."""
    full = local.target.value
    slack = 2 * elementwise_limit(full.numel(), local.target.spread.samples)
    sigma = local.target.spread.sigma
    for rank in local.wrong():
        for dim in range(full.ndim):
            found = _row_map(local.actual[rank], full, sigma, slack, dim)
            if found is not None and found != list(range(len(found))):
                message = f"{_name(local)}: dim {dim} of rank {rank} holds the rows {found[:12]}"
                return Diagnosis("shard-order", message, {"dim": dim, "rows": found})
    return None


def _row_map(
    actual: Tensor, full: Tensor, sigma: Tensor, slack: float, dim: int
) -> list[int] | None:
    """For each row of `actual` along `dim`, the row of `full` that it equals, or None."""
    others = [d for d in range(full.ndim) if d != dim]
    if any(actual.shape[d] != full.shape[d] for d in others) or actual.shape[dim] > 256:
        return None
    if not actual.numel():
        return None
    rows, wanted, noise = (
        t.movedim(dim, 0).reshape(t.shape[dim], -1) for t in (actual, full, sigma)
    )
    bound = slack * noise + 1e-13 * full.abs().max()
    if wanted.shape[1] < 1 or wanted.shape[0] < 2:
        return None
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
            if bool(near) and abs(factor) > 0.2:
                message = (
                    f"output is off by {factor:+.3g} × {name} on rank {rank}: "
                    "the bias must be added once, after the sum"
                )
                return Diagnosis("bias-per-rank", message, {"factor": factor, "bias": name})
    return None


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
    total = torch.stack(same).sum(0)
    for rank in local.wrong():
        want = take(total, local.target.entry, case=case, rank=rank)
        if local.fits(local.actual[rank], rank, expected=want):
            message = (
                f"{_name(local)} is the sum over the data of all {case.dp} dp groups: "
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
            f"{_name(local)} is wrong on a {facts.case.dp} × {facts.case.tp} mesh and right on "
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
    message = f"{_name(local)}: {rows} of {gap.shape[0]} rows are wrong, by token"
    return Diagnosis("vocab-mask", message, {"rows": rows})


def _right_in_float64(facts: Facts, local: Local) -> Diagnosis | None:
    """The same case in float64 is right: only precision is lost."""
    if facts.case.dtype == "float64":
        return None
    exact = facts.rerun(replace(facts.case, dtype="float64"))
    if exact is not None and not exact.mismatches:
        worst = max((m.error or 0) / (m.bound or 1) for m in facts.found.mismatches)
        message = f"{_name(local)} is right in float64 and off by {worst:.3g} × its bound here"
        return Diagnosis("precision-loss", message, {"error_over_bound": worst})
    return None


def _changes(facts: Facts, local: Local) -> Diagnosis | None:
    """The same case gave other values the second time."""
    first = {(m.kind, m.tensor, m.rank): str(m.actual) for m in facts.found.mismatches}
    second = {(m.kind, m.tensor, m.rank): str(m.actual) for m in facts.again.mismatches}
    if set(first) != set(second) or any(first[k] != second[k] for k in first):
        message = f"{_name(local)} differs from run to run: read before it is written"
        return Diagnosis("stale-buffer", message, {})
    return None


def _heads(facts: Facts, local: Local) -> Diagnosis | None:
    """With as many K/V heads as query heads the case is right: their map is wrong."""
    dims = facts.case.dims
    if "kv_heads" not in dims or "heads" not in dims or dims["heads"] == dims["kv_heads"]:
        return None
    other = facts.rerun(replace(facts.case, dims={**dims, "kv_heads": dims["heads"]}))
    if other is not None and not other.mismatches:
        message = (
            f"{_name(local)} is wrong with {dims['heads']} query and {dims['kv_heads']} K/V heads "
            f"and right with {dims['heads']} of each"
        )
        return Diagnosis("kv-head-map", message, {"heads": dims["heads"], "kv": dims["kv_heads"]})
    return None


_HYPOTHESES: tuple[Callable[[Facts, Local], Diagnosis | None], ...] = (
    _changes,
    _zero,
    _bias,
    _other_data_group,
    _scaled,
    _summed,
    _other_rank,
    _permuted,
    _only_with_dp,
    _heads,
    _tokens,
    _right_in_float64,
)


def _fallback(facts: Facts) -> Diagnosis:
    first = next(iter(facts.found.mismatches), None)
    if first is None:
        return Diagnosis("unclassified", "no mismatch was left to explain")
    where = f"{first.kind} {first.tensor}"
    return Diagnosis("unclassified", f"{where} is wrong; none of the known causes fits", {})
