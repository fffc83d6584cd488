"""Mutants die, by evidence of a kind that was expected: a survivor fails the suite, and so does a
wrong diagnosis. In each run they are one of every name, which must have it, and one of every spec;
all are in `pytest -m sweep`, as in `tpcheck mutants`.

Broken plans are mutants, too: `test_broken_plans.py`; those of Megatron-core need ranks that have
loaded it: `tests/ranks/adapters/test_megatron.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures.mutants import MUTANTS
from fixtures.mutants.build import row
from tests.catalogue.test_broken_plans import BROKEN
from tests.kills import dies, killed
from tpcheck.engines.engine import Engine
from tpcheck.mutant import Mutant

ELSEWHERE = {broken.name for broken in BROKEN}
HERE = [mutant for mutant in MUTANTS if mutant.name not in ELSEWHERE]

# mutant → the evidence that must be there, and the smallest dims that can show it
DULLEST: dict[str, tuple[str, dict[str, Any]]] = {
    "row_linear_without_all_reduce": ("output", {"batch": 1, "seq": 1, "in_features": 2}),
    "column_linear_without_backward_all_reduce": ("input_grad", {"batch": 1, "in_features": 1}),
    "row_linear_averaged": ("output", {"batch": 1, "seq": 1, "in_features": 2}),
    "bias_added_on_every_rank": ("output", {"batch": 1, "seq": 1, "bias": True}),
    "kv_head_is_rank_modulo_n_kv": ("output", {"batch": 1}),
    "kv_replica_gradients_not_summed": ("param_grad", {"batch": 1, "kv_heads": 1}),
    "chunk_major_output": ("output", {"batch": 1, "chunks": 2}),
    "norm_weight_gradient_partial": ("param_grad", {"batch": 1}),
    "vocab_range_off_by_one": ("output", {"batch": 1}),
    "reduced_over_the_world_group": ("output", {"batch": 1}),
    "no_backward": ("param_grad", {"batch": 1}),
    "gathered_in_reversed_rank_order": ("output", {"batch": 1}),
    "all_reduce_overwrites_its_input": ("param_grad", {"batch": 1}),
    "last_chunk_dropped": ("output", {"batch": 1}),
    "qk_norm_gradient_not_reduced": ("param_grad", {"batch": 1, "qk_norm": True}),
    "loss_target_not_masked": ("loss", {"batch": 1}),
}


#: One mutant for each name that none of those has. They are named in each run, the others are not:
#: a mutant costs ten times as much to name as to find. `tpcheck mutants` names all of them.
FIRST = {mutant.diagnosis[0]: mutant.name for mutant in reversed(HERE)}
COVERED = {mutant.diagnosis[0] for mutant in HERE if mutant.name in DULLEST}
#: The longest are the sweep's: others of FSDP2, of pipelines and of norms die in each run.
LONG = {
    "grad_norm_of_local_dtensors",
    "mixed_precision_left_off_the_root",
    "pipeline_tied_gradients_not_summed",
    "attention_dropout_mask_shared_between_head_shards",
    "causal_mask_from_the_local_sequence",
    "every_layer_loads_the_first",
    "pipeline_leaves_out_the_layers_that_do_not_divide",
    "step_that_is_to_be_left_out_is_taken",  # named in each run: `tests/ranks/ranks`
    "swiglu_scales_by_the_largest_number_of_all_rows",
}
#: What `tests/ranks/kernels` has a search find and name in each run: other kernels than these.
BY_KERNELS = {
    *("aliased-arguments", "integer-overflow", "out-of-bounds", "partial-gradients", "race"),
    *("stride-ignored", "wrong-configuration"),
}
#: Another of the same spec and name is in each run.
BESIDE = {
    "kv_head_is_rank_modulo_n_kv": "kv_tiled_instead_of_repeated",
    "qk_norm_gradient_not_reduced": "kv_replica_gradients_not_summed",
}
#: Others have the same name in each run.
OF_A_KIND = {"chunk_major_output", "loss_target_not_masked", "norm_weight_gradient_partial"}
NAMED = {*DULLEST, *(n for code, n in FIRST.items() if code not in COVERED | BY_KERNELS)}
NAMED |= {*BESIDE.values()}
NAMED -= {*LONG, *BESIDE, *OF_A_KIND}
OTHERS = [mutant for mutant in HERE if mutant.name not in NAMED]
#: The first of every other spec dies in each run, too: all take minutes together. Not of kernels,
#: in the interpreter: those that have a name of their own are of each of their kinds.
SEEN = {mutant.spec.name for mutant in HERE if mutant.name in NAMED}
OF_SPEC = {m.spec.name: m.name for m in reversed(OTHERS) if m.check.kernel is None}
DIE = {name for spec, name in OF_SPEC.items() if spec not in SEEN} - LONG


@pytest.mark.parametrize(
    "mutant",
    [m if m.name in DIE else pytest.param(m, marks=pytest.mark.sweep) for m in OTHERS],
    ids=lambda m: m.name,
)
def test_the_mutant_dies(gloo: Engine, mutant: Mutant) -> None:
    dies(mutant, gloo)


@pytest.mark.parametrize(
    "mutant",
    [m if m.name in NAMED else pytest.param(m, marks=pytest.mark.sweep) for m in HERE],
    ids=lambda m: m.name,
)
def test_the_mutant_is_killed_and_named(gloo: Engine, mutant: Mutant) -> None:
    found = killed(mutant, gloo)
    if mutant.name in DULLEST:
        kind, dims = DULLEST[mutant.name]
        assert kind in {m.kind for m in found.mismatches}
        assert {k: found.case[k] for k in dims} == dims, found.case.describe()
        # r % n_kv and r // (tp / n_kv) agree at tp=2 whatever n_kv is
        assert found.case.tp == (4 if mutant.name == "kv_head_is_rank_modulo_n_kv" else 2)


def test_every_mutant_is_in_the_matrix_here_or_there() -> None:
    assert {mutant.name for mutant in MUTANTS} >= ELSEWHERE
    assert {mutant.name for mutant in HERE} >= set(DULLEST)
    assert {FIRST[code] for code in BY_KERNELS}.isdisjoint(NAMED)
    assert {*BESIDE.values()} <= NAMED
    assert len(HERE) + len(ELSEWHERE) == len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shows_in": ("hang",)}, "Kind.OUTPUT"),
        ({"diagnosis": ("summed-twice",)}, "an all-reduce is missing"),
    ],
    ids=["another kind", "another name"],
)
def test_the_twin_a_mutant_that_is_not_what_it_says_is_seen(
    gloo: Engine, change: dict[str, tuple[str, ...]], says: str
) -> None:
    (mutant,) = (m for m in MUTANTS if m.name == "row_linear_without_all_reduce")
    with pytest.raises(AssertionError, match=says):
        killed(replace(mutant, **change), gloo)
    if "shows_in" in change:
        with pytest.raises(AssertionError, match=says):
            dies(replace(mutant, **change), gloo)


def test_the_twin_a_mutant_that_survives_is_seen(gloo: Engine) -> None:
    (mutant,) = (m for m in MUTANTS if m.name == "row_linear_without_all_reduce")
    right = replace(mutant, candidate=row.candidate())
    with pytest.raises(AssertionError, match="survived"):
        killed(right, gloo, examples=8)
    with pytest.raises(AssertionError, match="survived"):
        dies(right, gloo, examples=8)
