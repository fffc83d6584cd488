"""What float16 may lose in one order and not in another is not compared: cases of campaigns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from properties.checkpoints import attention_resumed
from properties.grad_norm import mlp_sp_sum_of_sizes
from tpcheck.bounds.compare import compare
from tpcheck.case import Case
from tpcheck.oracle.effort import CONFIRM
from tpcheck.oracle.pose import pose
from tpcheck.tensors.names import STEP, InPass
from tpcheck.vocabulary import Kind

MLP = {"batch": 2, "seq": 10, "hidden": 8, "intermediate": 6, "activation": "swiglu"}
CLIPPED = Case(
    {**MLP, "norm": "none", "residual": True, "bias": False},
    dtype="float16",
    mesh={"tp": 5},
    seed=70269417863464,
    magnitude=4,
)
HEADS = {"batch": 2, "seq": 5, "hidden": 8, "heads": 16, "kv_heads": 2, "head_dim": 4}
RESUMED = Case(
    {**HEADS, "bias": True, "norm": "none", "residual": False, "qk_norm": False}
    | {"rotary": True, "causal": True},
    dtype="float16",
    mesh={"tp": 2},
    seed=42999107987885,
    magnitude=4,
    saved_at=8,
)


def after_the_step(case: Case) -> set[Kind]:
    """What is compared of what an infinite norm may clip to nothing."""
    targets = pose(mlp_sp_sum_of_sizes.spec, case, CONFIRM).problems[0].targets
    left = (Kind.PARAM, Kind.GRAD_NORM)
    return {t.kind for t in targets if t.kind in left or InPass.parse(t.name).at == STEP}


# σ of an element near float16's largest number is larger than that, and a rank's ∞ is right
NEAR = Case(
    {**MLP, "batch": 3, "seq": 4, "hidden": 7, "intermediate": 10}
    | {"norm": "none", "residual": False, "bias": True},
    dtype="float16",
    mesh={"tp": 4},
    seed=24183376706166,
    step=True,
    memory="offset",
    magnitude=4,
)


def test_what_rounding_may_take_beyond_the_largest_number_may_be_infinite() -> None:
    by_far = 0
    for target in pose(mlp_sp_sum_of_sizes.spec, NEAR, CONFIRM).problems[0].targets:
        found, value = target.spread, target.value
        about: dict[str, Any] = {"name": target.name, "kind": target.kind, "rank": 0}
        bound = found.sigma * found.elementwise_limit(value.numel())
        may = value.abs() + bound > 65504
        by_far += int((may & found.sigma.isfinite() & (value.abs() > 0)).sum())
        overflown = torch.where(may, value.sign() * torch.inf, value)
        assert compare(overflown, value, replace(found, gain=0.0), **about).mismatch is None
        sure = ~may & (value != 0)
        if bool(sure.any()):
            overflown = torch.where(sure, value.sign() * torch.inf, value)
            assert compare(overflown, value, found, **about).mismatch is not None
    assert by_far, "no such element"


def test_what_is_clipped_by_a_norm_that_is_infinite_in_the_cases_dtype() -> None:
    assert after_the_step(CLIPPED) == set()
    assert after_the_step(replace(CLIPPED, dtype="bfloat16")) >= {Kind.PARAM, Kind.GRAD_NORM}


def test_what_ranks_of_another_degree_have_saved_is_bounded_as_theirs() -> None:
    judged = {}
    for case in (RESUMED, RESUMED.when_saved, replace(RESUMED, saved_at=0)):
        targets = pose(attention_resumed.spec, case, CONFIRM).problems[0].targets
        (found,) = (t for t in targets if (t.kind, t.name) == (Kind.PARAM, "v_proj.weight"))
        judged[case.tp, case.saved_at] = found.spread.sigma.isfinite().tolist()
    assert judged[2, 8] == judged[8, 0] != judged[2, 0]
