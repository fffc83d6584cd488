"""What float16 may lose in one order and not in another is not compared: cases of campaigns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from properties.checkpoints import attention_resumed
from properties.grad_norm import mlp_sp_sum_of_sizes
from properties.training import mlp_scaled_adamw
from tpcheck import Layout, Spec
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


SCALED = Case(
    {"batch": 3, "seq": 3, "hidden": 3, "intermediate": 8, "activation": "gelu", "norm": "layer"}
    | {"residual": False, "bias": False},
    dtype="float16",
    mesh={"dp": 2, "tp": 2},
    seed=13776300901941,
    microbatches=2,
    step=True,
    memory="transposed",
)


def after_the_step(case: Case) -> set[Kind]:
    """What is compared of what an infinite norm may clip to nothing."""
    targets = pose(mlp_sp_sum_of_sizes.spec, case, CONFIRM).problems[0].targets
    left = (Kind.PARAM, Kind.GRAD_NORM)
    return {t.kind for t in targets if t.kind in left or InPass.parse(t.name).at == STEP}


# 2 · 9000 · 8 of two ranks: ∞ − ∞ in the first row, and in no other
LARGE_PARTS = {
    "x": torch.tensor([[9000.0, 9001.0], [1.0, 2.0], [-3.0, 1.5]]),
    "w": torch.tensor([[8.0, 1.0, 2.0], [-8.0, 1.5, 3.0]]),
}
HOLES = torch.tensor([[True, False, False], [False, True, False], [False, False, True]])


def near_one(x: Tensor, w: Tensor) -> dict[str, Tensor]:
    """What makes numbers near 1 of all, and what it is of."""
    scores = x @ w
    masked = scores[1:].masked_fill(HOLES[1:], torch.finfo(x.dtype).min)
    return {
        "scores": scores,
        "softmax": scores.softmax(-1),
        "norm": F.layer_norm(scores, (3,)),
        "largest": scores.argmax(-1),
        "masked": masked.softmax(-1),
    }


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_where_it_overflows_a_softmax_or_a_norm_may_be_nan(dtype: str) -> None:
    spec = Spec(
        name="near one",
        cases=[Case()],
        reference=lambda case: near_one,
        inputs=lambda case, draw: dict(LARGE_PARTS),
        layout=lambda case: Layout(),
    )
    found = pose(spec, Case(dtype=dtype, mesh={"tp": 2}), CONFIRM).problems[0].targets
    judged = {t.name: t.spread.sigma.isfinite().tolist() for t in found if t.kind is Kind.OUTPUT}
    first = dtype == "bfloat16"
    assert judged["softmax"] == judged["norm"] == [[first] * 3, [True] * 3, [True] * 3]
    assert judged["largest"] == [first, True, True]
    assert judged["masked"] == [[True] * 3] * 2
    assert judged["scores"][1:] == [[True] * 3] * 2 and judged["scores"][0][0] is first


def test_what_is_clipped_by_a_norm_that_is_infinite_in_the_cases_dtype() -> None:
    assert after_the_step(CLIPPED) == set()
    assert after_the_step(replace(CLIPPED, dtype="bfloat16")) >= {Kind.PARAM, Kind.GRAD_NORM}


@pytest.mark.parametrize(
    ("dtype", "last"), [("float16", 1), pytest.param("bfloat16", 3, marks=pytest.mark.sweep)]
)
def test_a_step_that_one_coordinate_may_leave_out_is_so_on_all(dtype: str, last: int) -> None:
    """Of the first one's third step a term may be beyond float16, in another order; gradients
    themselves are not near it."""
    judged = {}
    for problem in pose(mlp_scaled_adamw.spec, replace(SCALED, dtype=dtype), CONFIRM).problems:
        own = (t for t in problem.targets if t.kind is Kind.OPTIMIZER_STATE)
        judged[problem.d] = max(InPass.parse(t.name).at.step for t in own)
    assert judged == {0: last, 1: last}


def test_what_ranks_of_another_degree_have_saved_is_bounded_as_theirs() -> None:
    judged = {}
    for case in (RESUMED, RESUMED.when_saved, replace(RESUMED, saved_at=0)):
        targets = pose(attention_resumed.spec, case, CONFIRM).problems[0].targets
        (found,) = (t for t in targets if (t.kind, t.name) == (Kind.PARAM, "v_proj.weight"))
        judged[case.tp, case.saved_at] = found.spread.sigma.isfinite().tolist()
    assert judged[2, 8] == judged[8, 0] != judged[2, 0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_infinite_is_so_by_the_narrower_dtype(dtype: str) -> None:
    spec = Spec(
        name="in others",
        cases=[Case()],
        reference=lambda case: lambda x: {"half": (x * 0.3).half(), "wide": (x * 0.3).float()},
        inputs=lambda case, draw: {"x": draw("x", 4)},
        layout=lambda case: Layout(),
    )
    targets = pose(spec, Case(dtype=dtype), CONFIRM).problems[0].targets
    found = {t.name: t.spread.largest for t in targets if t.kind is Kind.OUTPUT}
    most = torch.finfo(getattr(torch, dtype)).max
    assert found == {"half": 65504.0, "wide": most}


def test_integers_of_another_number_in_another_run_are_left_open() -> None:
    """Where one number more or less is above what it is held against, as rounding has it."""
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(1)).bfloat16()

    def above(x: Tensor, w: Tensor) -> dict[str, Tensor]:
        y = (x * w).sum(-1)
        least = (x.double() * w.double()).sum(-1).sort().values[16]
        return {"y": y, "at": (y >= least).nonzero()[:, 0]}

    spec = Spec(
        name="above",
        cases=[Case()],
        reference=lambda case: above,
        inputs=lambda case, draw: {"x": x, "w": x.flip(0)},
        layout=lambda case: Layout(),
    )
    targets = pose(spec, Case(dtype="bfloat16"), CONFIRM).problems[0].targets
    (at,) = (t for t in targets if t.name == "at")
    assert not bool(at.spread.sigma.isfinite().any())
