"""Hypotheses about one wrong tensor on its ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from tests.unit.diagnosis.edits import (
    CASE,
    COLUMN,
    DB,
    DIMS,
    DW,
    OUT,
    ROW,
    change,
    dumps_of,
    examine,
    expected,
    judged,
    noise,
    terms,
    times,
)
from tpcheck import Case, Replicate, specs
from tpcheck.bounds.spread import Spread
from tpcheck.causes.tensor import LowPrecision, PartsExchanged, Scaled
from tpcheck.causes.where import Subject
from tpcheck.diagnosis import diagnose
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.hypotheses.tensor import low_precision, other_rank, scaled, summed
from tpcheck.oracle.pose import pose
from tpcheck.protocol.problem import Target
from tpcheck.vocabulary import Kind


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


def test_parts_of_different_sizes_are_no_terms() -> None:
    """As inside a module, of sizes that there are fewer of than ranks."""
    whole = torch.ones(2, 2, dtype=torch.float64)
    target = Target(Kind.OUTPUT, "y", Replicate(), whole.dtype, whole, Spread(0 * whole, 1, 1))
    parts, right = {0: 3 * whole, 1: whole[:, :0]}, {0: whole, 1: whole[:, :0]}
    local = Local(target, Case(), [0, 1], parts, right, {r: 0 * p for r, p in parts.items()})
    assert local.wrong() == [0] and summed(cast("Facts", None), local) is None


def test_integers_may_have_a_common_factor() -> None:
    """As a counter of forwards, in a buffer, that counts each twice."""
    whole = torch.ones(2, dtype=torch.float64)
    target = Target(Kind.PARAM, "n", Replicate(), torch.int64, whole, Spread(0 * whole, 1, 1))
    twice, right = {0: 2 * whole, 1: 2 * whole}, {0: whole, 1: whole}
    local = Local(target, Case(), [0, 1], twice, right, {r: 0 * whole for r in right})
    found = scaled(cast("Facts", None), local)
    assert found and isinstance(found.cause, Scaled) and found.cause.factor == 2.0


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
        facts = Facts(posed, found, found, dumps_of(ranks), lambda c, r=rerun: r.get(c.canonical()))
        assert diagnose.diagnose(facts).code == code


def test_one_factor_in_several_modules_needs_no_other_numbers() -> None:
    mlp = {"batch": 1, "seq": 2, "hidden": 4, "intermediate": 8, "activation": "gelu"}
    case = replace(CASE, dims=mlp | {"norm": "none", "residual": False, "bias": False})

    def named(up: float, down: float) -> str:
        edits = (times(f"param_grad/{n}.weight", f, 1) for n, f in (("up", up), ("down", down)))
        return examine(*edits, spec=specs.mlp(), case=case, right=lambda c: c.seed != 11).code

    assert named(0.7, 0.7) == "replicas-differ"
    assert named(0.7, 0.6) == named(0.7, 1.0) == "unclassified"


def test_twice_the_value_on_two_by_two_ranks_is_summed_twice_not_a_wrong_group() -> None:
    case = replace(CASE, mesh={"dp": 2, "tp": 2})  # other data in each group: their sum differs
    assert examine(times(OUT, 2), case=case).code == "summed-twice"


def test_evidence_names_the_ranks_and_the_factor() -> None:
    subject = Subject(Kind.OUTPUT, "output")
    assert examine(times(OUT, 4, 1, 2)).cause == Scaled(subject, 4.0, (1, 2), world=True)
    swapped = examine(change(OUT, lambda old, r: old[3 - r]), spec=COLUMN)
    assert swapped.cause == PartsExchanged(subject, {0: 3, 1: 2, 2: 1, 3: 0})


def held(
    kind: Kind, parts: list[Tensor], expected: list[Tensor], *, dtype: torch.dtype, sigma: float
) -> Local:
    """One tensor on its ranks, of the first one's shape."""
    spread = Spread(torch.full_like(expected[0], sigma), 9, 99)
    target = Target(kind, "t", Replicate(), dtype, expected[0], spread)
    sigmas = {r: torch.full_like(part, sigma) for r, part in enumerate(expected)}
    given = dict(enumerate(parts)), dict(enumerate(expected)), sigmas
    return Local(target, Case(mesh={"tp": len(parts)}), [*range(len(parts))], *given)


def test_a_step_that_one_replica_alone_took_is_no_factor() -> None:
    """A count of 2 where it is to be 1 is twice that, as it would be of ranks that add up."""
    once = torch.ones(2, dtype=torch.float64)
    for kind, found in ((Kind.OPTIMIZER_STATE, False), (Kind.PARAM_GRAD, True)):
        local = held(kind, [once, 2 * once], [once, once], dtype=torch.float32, sigma=1e-9)
        assert (scaled(cast("Facts", None), local) is not None) is found
    both = held(Kind.OPTIMIZER_STATE, [2 * once] * 2, [once] * 2, dtype=once.dtype, sigma=1e-9)
    assert scaled(cast("Facts", None), both) is not None


def test_what_every_rank_is_to_hold_is_no_other_s_part() -> None:
    """As replicated state, of which some elements are bounded far closer than others."""
    whole = torch.ones(2, dtype=torch.float64)
    off = whole + torch.tensor([1e-3, -1e-3])
    local = held(Kind.OPTIMIZER_STATE, [off] * 2, [whole] * 2, dtype=whole.dtype, sigma=1)
    close = torch.full_like(whole, 1e-9)
    local = replace(local, sigma={rank: close for rank in local.ranks})
    assert local.wrong() == [0, 1]
    assert other_rank(cast("Facts", None), local) is None


def test_a_multiple_of_the_own_part_is_no_other_s_part() -> None:
    """However wide the bounds of a low dtype are."""
    parts = [torch.tensor([0.010, 0.012]).double(), torch.tensor([0.007, 0.007]).double()]
    for actual, found in (
        ([0.64 * parts[0], 0.64 * parts[1]], False),
        ([parts[1], parts[0]], True),
    ):
        local = held(Kind.OPTIMIZER_STATE, actual, parts, dtype=torch.bfloat16, sigma=1e-3)
        local.sigma = {0: torch.full((2,), 1e-6).double(), 1: torch.full((2,), 1e-6).double()}
        assert local.wrong() == [0, 1]
        assert (other_rank(cast("Facts", None), local) is not None) is found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_dtype_of_what_is_computed_too_low_is_named(dtype: torch.dtype) -> None:
    """A number of bfloat16 that float16 holds, too, was not rounded to float16."""
    right = torch.rand(64, generator=torch.Generator().manual_seed(1)).double() + 0.5
    low = right.to(dtype).double()
    assert torch.equal(low.to(torch.float16).double(), low)
    local = held(Kind.OUTPUT, [low], [right], dtype=torch.float32, sigma=1e-9)
    found = low_precision(cast("Facts", None), local)
    assert found is not None and isinstance(found.cause, LowPrecision)
    assert found.cause.dtype == str(dtype).removeprefix("torch.")
