"""Diagnosis: from expected slices with one known edit to the name of its cause (R = degree)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tpcheck import specs
from tpcheck.bounds import compare
from tpcheck.case import Case
from tpcheck.diagnosis import diagnose
from tpcheck.diagnosis.diagnose import CODES, Facts, first_divergence
from tpcheck.oracle.pose import Posed, pose
from tpcheck.placement import Layout, take
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Problem, Target
from tpcheck.runner.runner import judge
from tpcheck.spec import Spec
from tpcheck.verdict import CaseResult, Diagnosis, Mismatch

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
    problem = posed.problems[posed.case.coordinates(rank).get("dp", 0)]
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
            report.digests[t.kind, t.name] = compare.fingerprint(held[key])
        reports.append(report)
    return judge(posed, "gloo", reports)


def examine(
    *edits: Edit,
    spec: Spec = ROW,
    case: Case = CASE,
    right: Callable[[Case], bool] | None = None,
    right_posed: Callable[[Posed], bool] | None = None,
) -> Diagnosis:
    """The diagnosis of ranks with these edits; `right` says which other cases pass besides those
    of one rank, `right_posed` which problems of one's own making."""
    posed = pose(spec, case, watch=0)
    ranks = expected(posed)
    assert judged(posed, ranks).mismatches == []
    for edit in edits:
        edit(ranks, posed)
    found = judged(posed, ranks)
    assert found.mismatches
    dumps = {r: {k: t for k, t in held.items() if t is not None} for r, held in ranks.items()}

    def rerun(other: Case) -> CaseResult:
        passes = other.world_size == 1 or (right is not None and right(other))
        return CaseResult(other, "gloo", [] if passes else found.mismatches)

    silent = replace(spec, budget=None)  # no rank has run, so that no trace says anything

    def execute(other: Posed) -> CaseResult:
        passes = right_posed is not None and right_posed(other)
        return CaseResult(other.case, "gloo", [] if passes else found.mismatches)

    facts = Facts(posed, found, found, dumps, rerun, silent, execute=execute)
    named = diagnose.diagnose(facts)
    assert named.code in CODES and named.message
    return named


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


CAUSES: dict[str, tuple[Spec, Case, Edit, str]] = {
    "output × R": (ROW, CASE, times(OUT, 4), "summed-twice"),
    "input gradient × R": (ROW, CASE, times(DX, 4), "summed-twice"),
    "bias gradient × R²": (ROW, CASE, times(DB, 16), "summed-twice"),
    "bias gradient ÷ R": (ROW, CASE, times(DB, 1 / 4), "averaged-not-summed"),
    "terms of the output": (ROW, CASE, terms(OUT), "missing-all-reduce"),
    "terms of the input gradient": (COLUMN, CASE, terms(DX), "missing-all-reduce"),
    "terms of the bias gradient": (ROW, CASE, terms(DB), "partial-not-reduced"),
    "bias R − 1 times more": (ROW, CASE, add_bias(3), "bias-per-rank"),
    "no bias at all": (ROW, CASE, add_bias(-1), "bias-per-rank"),
    "mirrored output": (COLUMN, CASE, change(OUT, lambda old, r: old[3 - r]), "shard-order"),
    "mirrored bias": (COLUMN, CASE, change(DB, lambda old, r: old[3 - r]), "shard-order"),
    "permuted rows": (COLUMN, CASE, change(DW, lambda old, r: old[r].roll(1, 0)), "shard-order"),
    "permuted tokens": (ROW, CASE, change(OUT, lambda old, r: old[r].flip(1)), "shard-order"),
    "zero gradient": (ROW, CASE, times(DW, 0, 1), "gradient-dropped"),
    "no gradient": (ROW, CASE, change(DW, lambda old, r: None, 2), "gradient-dropped"),
    "nan": (ROW, CASE, times(OUT, torch.nan, 1), "unwritten-memory"),
    "shape": (COLUMN, CASE, change(OUT, lambda old, r: old[r][..., :1]), "wrong-placement"),
    "dtype": (ROW, CASE, change(OUT, lambda old, r: old[r].float()), "precision-loss"),
    "all data": (ROW, WIDE, change(OUT, lambda old, r: old[0] + old[4]), "wrong-group"),
    "a replica's last bit": (ROW, CASE, times(OUT, 1 + 2**-52, 3), "replicas-differ"),
    "noise": (ROW, CASE, noise(OUT), "unclassified"),
    "noise in a vector": (ROW, CASE, noise(DB), "unclassified"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_known_corruption_gets_its_name(name: str) -> None:
    spec, case, edit, code = CAUSES[name]
    assert examine(edit, spec=spec, case=case).code == code


LOW = replace(CASE, dtype="float32")
HEADS: dict[str, Any] = {"batch": 1, "seq": 3, "hidden": 6, "heads": 4, "kv_heads": 2}
FLAGS = dict.fromkeys(("bias", "residual", "qk_norm", "rotary", "causal"), False)
GQA = Case(dims=HEADS | FLAGS | {"head_dim": 2, "norm": "none"}, mesh={"tp": 4})
RERUNS: dict[str, tuple[Spec, Case, Callable[[Case], bool], str]] = {
    "right without dp": (ROW, WIDE, lambda c: "dp" not in c.mesh, "wrong-group"),
    "right as MHA": (specs.attention(), GQA, lambda c: c["kv_heads"] == 4, "kv-head-map"),
}


def equal_kv_heads(posed: Posed) -> bool:
    weight = posed.problems[0].params.get("k_proj.weight")
    return weight is not None and torch.equal(*weight.chunk(2))


@pytest.mark.parametrize("name", RERUNS)
def test_another_case_that_passes_narrows_the_cause(name: str) -> None:
    spec, case, right, code = RERUNS[name]
    edit = noise(OUT)
    found = examine(edit, spec=spec, case=case, right=right, right_posed=equal_kv_heads)
    assert found.code == code
    assert examine(noise(OUT), spec=spec, case=case).code == "unclassified"


TOKENS = Case(dims={"batch": 2, "seq": 4, "vocab": 8, "hidden": 3}, mesh={"tp": 2})


def looked_up(row: Callable[[Tensor], Tensor]) -> Edit:
    """Every token at position 1 gets `row(table)`."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        table = posed.problems[0].params["weight"]
        change(OUT, lambda old, r: old[r].index_copy(1, torch.tensor([1]), row(table)))(
            ranks, posed
        )

    return edit


def test_rows_of_other_tokens_name_the_vocabulary() -> None:
    spec = specs.embedding()
    another = looked_up(lambda table: table[5].expand(2, 1, 3))
    nothing = looked_up(lambda table: torch.zeros(2, 1, 3, dtype=table.dtype))
    garbage = looked_up(lambda table: torch.full((2, 1, 3), 7.0, dtype=table.dtype))
    assert examine(another, spec=spec, case=TOKENS).code == "vocab-mask"
    assert examine(nothing, spec=spec, case=TOKENS).code == "vocab-mask"
    assert examine(garbage, spec=spec, case=TOKENS).code == "unclassified"


# ---- what the reference gives for other inputs or cotangents

SP = replace(CASE, dims=DIMS | {"batch": 4, "seq": 4, "bias": False})
COLUMN_SP, ROW_SP = (
    make(sequence_parallel=True) for make in (specs.column_linear, specs.row_linear)
)


def test_parts_gathered_along_another_dim_are_an_order() -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        x = torch.cat(problem.inputs[0]["x"].chunk(4, 1), 0).reshape(4, 4, 8)
        for rank, held in ranks.items():
            held[OUT] = x @ problem.params["weight"].chunk(4, 0)[rank].T

    named = examine(edit, spec=COLUMN_SP, case=SP)
    assert named.code == "shard-order"
    assert named.evidence == {"input": "x", "gathered": "gathered along dim 0 instead of 1"}


def weight_gradient(positions: Callable[[int], list[int]]) -> Edit:
    """dw from the positions (along the sequence) that each rank takes."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        x, dy = problem.inputs[0]["x"], problem.cotangents[0]["output"]
        for rank, held in ranks.items():
            at = positions(rank)
            dw = dy[:, at].flatten(0, 1).T @ x[:, at].flatten(0, 1)
            held[DW] = dw.chunk(4, 1)[rank]

    return edit


def test_positions_that_do_not_count_are_dropped_and_own_ones_are_not_reduced() -> None:
    dropped = examine(weight_gradient(lambda rank: [1, 3]), spec=ROW_SP, case=SP)
    assert dropped.code == "gradient-dropped"
    assert dropped.evidence == {"kept": {str(r): [1, 3] for r in range(4)}, "of": 4}
    own = examine(weight_gradient(lambda rank: [rank]), spec=ROW_SP, case=SP)
    assert own.code == "partial-not-reduced"
    twice = examine(weight_gradient(lambda rank: [0, 1, 2, 3, 3]), spec=ROW_SP, case=SP)
    assert twice.code == "unclassified"


def test_input_features_that_no_rank_covers_are_an_order() -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        x, w = problem.inputs[0]["x"][..., :-1], problem.params["weight"][:, :-1]
        for held in ranks.values():
            held[OUT] = x @ w.T

    case = replace(CASE, dims=DIMS | {"bias": False})
    named = examine(edit, spec=ROW, case=case)
    assert (named.code, named.evidence["kept"]["0"]) == ("shard-order", [0, 1, 2, 3, 4, 5, 6])


def test_one_rank_s_term_in_the_place_of_the_sum_is_a_missing_all_reduce() -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        x, w = problem.inputs[0]["x"][..., 2:4], problem.params["weight"][:, 2:4]
        for held in ranks.values():
            held[OUT] = x @ w.T

    named = examine(edit, spec=ROW, case=replace(CASE, dims=DIMS | {"bias": False}))
    assert (named.code, named.evidence["kept"]["3"]) == ("missing-all-reduce", [2, 3])


def test_one_branch_that_is_not_summed_is_found_by_what_it_sends_back() -> None:
    mlp = {"batch": 1, "seq": 2, "hidden": 4, "intermediate": 8, "activation": "swiglu"}
    dims = mlp | {"norm": "none", "residual": False, "bias": False}

    def edit(ranks: Ranks, posed: Posed) -> None:
        gate = next(t for t in posed.problems[0].borders if t.name == "backward|gate|0|in|0")
        for rank, held in ranks.items():
            share = (rank + 1) / 10.0  # of four terms that add up to the whole
            held[DX] = held[DX] - (1 - share) * gate.value

    named = examine(edit, spec=specs.mlp(), case=Case(dims=dims, mesh={"tp": 4}))
    assert (named.code, named.evidence) == ("missing-all-reduce", {"branch": "gate"})


def test_only_the_first_microbatch_summed_is_not_reduced() -> None:
    case = replace(CASE, microbatches=2)
    first = {(t.kind, t.name): t.value for t in pose(ROW, CASE).problems[0].targets}

    def edit(ranks: Ranks, posed: Posed) -> None:
        for rank, held in ranks.items():
            one = first["param_grad", "bias"]
            held[DB] = one + (rank + 1) / 10.0 * (held[DB] - one)

    assert examine(edit, case=case).code == "partial-not-reduced"


@pytest.mark.parametrize(("factor", "code"), [(2.0, "summed-twice"), (0.5, "averaged-not-summed")])
def test_gradients_that_cannot_be_laid_side_by_side_still_have_a_common_factor(
    factor: float, code: str
) -> None:
    case = replace(CASE, mesh={"dp": 2, "tp": 2})
    values = [0.3, -1.7, 2.4, 0.9, -0.2, 5.5]
    wrong = [
        Mismatch(f"w{i // 2}", "param_grad", i % 2, (0,), v, factor * v, 1.0, 0.1)
        for i, v in enumerate(values)
    ]
    odd = replace(wrong[3], actual=1.0)
    for mismatches, named in (
        (wrong, code),
        ([*wrong[:3], odd, *wrong[4:]], "unclassified"),
        (wrong[:4], "unclassified"),
    ):
        found = CaseResult(case, "gloo", mismatches)
        posed = Posed(case, [Problem(0), Problem(1)], {}, {}, {})
        facts = Facts(posed, found, found, {}, lambda c: None)
        assert diagnose.diagnose(facts).code == named


def test_what_was_written_over_before_backward_is_a_stale_buffer() -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        noise(DW)(ranks, posed)
        ranks[1]["overwritten/mine.py:3"] = torch.zeros(1)

    named = examine(edit)
    assert (named.code, named.evidence) == ("stale-buffer", {"where": "mine.py:3"})


def test_a_small_error_that_float64_lacks_is_a_loss_of_precision() -> None:
    assert examine(times(OUT, 4), case=LOW).code == "summed-twice"
    small = examine(times(OUT, 1 + 2**-8), case=LOW, right=lambda c: c.dtype == "float64")
    assert small.code == "precision-loss"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_error_too_large_for_rounding_is_no_loss_of_precision(dtype: str) -> None:
    case = replace(CASE, dtype=dtype)
    for edit, code in ((times(OUT, 4), "summed-twice"), (add_bias(3), "bias-per-rank")):
        named = examine(edit, case=case, right=lambda c: c.dtype == "float64")
        assert (named.code, named.evidence["only_in"]) == (code, dtype)
        assert f"so in {dtype}, right in float64" in named.message
    other = examine(noise(OUT), case=case, right=lambda c: c.dtype == "float64")
    assert (other.code, other.evidence) == ("unclassified", {"only_in": dtype})


def test_a_later_pass_that_is_not_summed_misses_an_all_reduce() -> None:
    later = replace(CASE, microbatches=2)
    assert examine(terms("output/output@1"), case=later).code == "missing-all-reduce"
    assert examine(noise("output/output@1"), case=later).code == "stale-buffer"


@pytest.mark.parametrize(
    ("ulps", "code"), [(16, "partial-not-reduced"), (1, "averaged-not-summed")]
)
def test_terms_as_large_as_each_other_are_no_average(ulps: int, code: str) -> None:
    """Ranks that add up in orders of their own, and then average, differ by an ulp or so."""

    def term(old: dict[int, Any], rank: int) -> Tensor:
        return 0.25 * old[rank] * (1.0 + (-1) ** rank * ulps * 2.0**-53)

    assert examine(change(DB, term)).code == code


def test_parts_of_different_sizes_may_have_a_common_factor() -> None:
    uneven = replace(CASE, dims={**DIMS, "in_features": 10})  # 3, 3, 3 and 1 columns
    assert examine(times(DW, 0.25), case=uneven).code == "averaged-not-summed"


def test_a_factor_on_one_rank_must_hold_for_other_numbers() -> None:
    posed = pose(ROW, CASE)
    ranks = expected(posed)
    times(OUT, 1.25, 1)(ranks, posed)
    found = judged(posed, ranks)
    again = pose(ROW, replace(CASE, seed=CASE.seed + 1))
    for factor, code in ((1.25, "replicas-differ"), (1.5, "unclassified"), (1.0, "unclassified")):
        others = expected(again)
        times(OUT, factor, 1)(others, again)
        rerun = {again.case.canonical(): judged(again, others)}
        facts = Facts(posed, found, found, ranks, lambda c, r=rerun: r.get(c.canonical()))
        assert diagnose.diagnose(facts).code == code


def test_one_factor_in_several_modules_needs_no_other_numbers() -> None:
    mlp = {"batch": 1, "seq": 2, "hidden": 4, "intermediate": 8, "activation": "gelu"}
    case = replace(CASE, dims=mlp | {"norm": "none", "residual": False, "bias": False})

    def named(up: float, down: float) -> str:
        edits = (times(f"param_grad/{n}.weight", f, 1) for n, f in (("up", up), ("down", down)))
        return examine(*edits, spec=specs.mlp(), case=case, right=lambda c: c.seed != 11).code

    assert named(0.7, 0.7) == "replicas-differ"
    assert named(0.7, 0.6) == named(0.7, 1.0) == "unclassified"


def test_outputs_of_other_names_are_named() -> None:
    detail = {"reason": "not returned", "returned": ["output.0"], "wanted": ["output"]}
    posed = Posed(CASE, [Problem(0)], {}, {}, {})
    found = CaseResult(CASE, "gloo", [Mismatch("output", "output", 0, detail=detail)])
    named = diagnose.diagnose(Facts(posed, found, found, {}, lambda c: None))
    assert named.code == "plan-entry-unmatched"
    assert named.message == "the candidate returns output.0, the reference output"
    detail["returned"] = []
    named = diagnose.diagnose(Facts(posed, found, found, {}, lambda c: None))
    assert "returns nothing that is a tensor, the reference output" in named.message


def test_a_nan_is_not_said_to_be_unwritten_memory_for_sure() -> None:
    found = examine(times(OUT, torch.nan, 1))
    assert found.code == "unwritten-memory" and "unless arithmetic made them" in found.message


def test_evidence_that_changes_from_run_to_run_is_a_stale_buffer() -> None:
    posed = pose(ROW, CASE)
    first, second = expected(posed), expected(posed)
    times(OUT, 4)(first, posed)
    found = judged(posed, first)
    for dumps, code in ((second, "stale-buffer"), (first, "summed-twice")):
        facts = Facts(posed, found, found, dumps, lambda c: None)
        assert diagnose.diagnose(facts).code == code


def test_nan_in_both_runs_is_no_change_from_run_to_run() -> None:
    assert examine(times(OUT, 4), times(DW, torch.nan)).code == "summed-twice"


def test_twice_the_value_on_two_by_two_ranks_is_summed_twice_not_a_wrong_group() -> None:
    case = replace(CASE, mesh={"dp": 2, "tp": 2})  # other data in each group: their sum differs
    assert examine(times(OUT, 2), case=case).code == "summed-twice"


def test_an_output_of_one_dim_can_be_diagnosed() -> None:
    def inputs(case: Case, draw: Any) -> dict[str, Tensor]:
        return {"x": draw("x", 4, 3)}

    rows = Spec("rows", [Case()], lambda c: lambda x: x.sum(-1), inputs, lambda c: Layout())
    assert examine(noise(OUT), spec=rows, case=Case()).code == "unclassified"


def test_the_first_cause_in_the_order_of_computation_is_named() -> None:
    assert examine(times(DW, 0), times(OUT, 1 / 4)).code == "averaged-not-summed"


def test_evidence_names_the_ranks_and_the_factor() -> None:
    assert examine(times(OUT, 4, 1, 2)).evidence == {"factor": 4.0, "ranks": [1, 2]}
    swapped = examine(change(OUT, lambda old, r: old[3 - r]), spec=COLUMN)
    assert swapped.evidence["map"] == {"0": 3, "1": 2, "2": 1, "3": 0}


STRUCTURAL: dict[str, tuple[str, dict[str, Any], str]] = {
    "crash": ("crash", {"reason": "signal 11"}, "rank-crash"),
    "exception": ("exception", {"type": "KeyError", "phase": "forward"}, "rank-crash"),
    "collective": ("collective", {"reason": "they differ"}, "collective-mismatch"),
    "hang": ("hang", {"reason": "waits", "last": ["barrier"]}, "deadlock"),
    "finished": ("hang", {"reason": "rank 0 finished without it"}, "collective-mismatch"),
    **{f: ("sharding", {"fault": f}, "parameter-not-sharded") for f in ("whole", "storage")},
    **{f: ("sharding", {"fault": f}, "wrong-placement") for f in ("shape", "placement")},
    **{f: ("sharding", {"fault": f}, "plan-entry-unmatched") for f in ("missing", "unexpected")},
}


@pytest.mark.parametrize("name", STRUCTURAL)
def test_what_needs_no_values_is_named_from_the_evidence_alone(name: str) -> None:
    kind, detail, code = STRUCTURAL[name]
    waits = Mismatch("hang", "hang", 0, detail={"reason": "waits", "consequence": True})
    posed = Posed(CASE, [], {}, {}, {})
    cause = Mismatch(kind, kind, 1, detail=detail)
    for mismatches in ([cause], [waits, cause]):
        found = CaseResult(CASE, "gloo", mismatches)
        assert diagnose.diagnose(Facts(posed, found, found, {}, lambda c: None)).code == code


@pytest.mark.parametrize(
    "order",
    ["output/y param_grad/w", "input_grad/x output/y@1", "param_grad/w param/w output/y@step"],
)
def test_the_first_divergence_is_the_first_to_be_computed(order: str) -> None:
    found = [Mismatch(name, kind, 0) for kind, name in (e.split("/") for e in order.split())]
    for mismatches in (found, found[::-1]):
        first = first_divergence(CaseResult(CASE, "gloo", mismatches))
        assert first is not None and first.split()[0] == found[0].tensor
