"""The reference of the cross-entropy is torch's, and its cases meet what goes wrong."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tpcheck import specs
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.reference import draw_inputs
from tpcheck.placement import Shard
from tpcheck.search import drawing
from tpcheck.search.of_spec import cases_of
from tpcheck.space import Space
from tpcheck.spec import Spec
from tpcheck.specs.cross_entropy import CrossEntropy

LOGITS = torch.randn(2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([[0, -100, 6], [3, 3, -100]])


def cases(spec: Spec, count: int = 60) -> list[Case]:
    drawn: list[Case] = []
    drawing.each(cases_of(spec, Space()), count, "k", drawn.append)
    return drawn


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_it_is_torchs(reduction: str, smoothing: float) -> None:
    found = CrossEntropy(7, reduction=reduction, label_smoothing=smoothing)(LOGITS, TARGETS)
    flat = LOGITS.flatten(0, 1), TARGETS.flatten()
    right = F.cross_entropy(*flat, reduction=reduction, label_smoothing=smoothing)
    torch.testing.assert_close(found, right.view(found.shape), rtol=1e-14, atol=0.0)


def test_the_square_of_the_logarithm_is_added_where_tokens_count() -> None:
    plain, squared = (CrossEntropy(7, reduction="none", z_loss=z)(LOGITS, TARGETS) for z in (0, 2))
    wanted = 2 * LOGITS.exp().sum(-1).log().square() * (TARGETS != -100)
    torch.testing.assert_close(squared - plain, wanted, rtol=1e-13, atol=1e-13)


def test_padding_counts_for_nothing_and_has_no_gradient() -> None:
    logits = LOGITS.clone().requires_grad_()
    loss = CrossEntropy(5)(logits, TARGETS.clamp(max=4))
    assert loss == CrossEntropy(5)(LOGITS[..., :5], TARGETS.clamp(max=4))
    (grad,) = torch.autograd.grad(loss, logits)
    assert grad[..., 5:].count_nonzero() == 0 and grad[..., :5].count_nonzero() > 0


def test_what_is_raised_is_of_float32_at_least() -> None:
    for given, raised in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        assert CrossEntropy(7, upcast=True)(LOGITS.to(given), TARGETS).dtype == raised
        assert CrossEntropy(7)(LOGITS.to(given), TARGETS).dtype == given


def test_targets_are_at_the_ends_of_ranges_and_never_all_ignored() -> None:
    spec = specs.cross_entropy(padded=True)
    edges = ignored = shorter = 0
    for case in cases(spec):
        targets = draw_inputs(spec, case, 0, 0)["targets"]
        held = Shard(0).indices(case["width"], case.tp, 0)
        edges += bool((targets == held[-1]).any())
        counted = targets != -100
        assert counted.any() and targets[counted].max() < case["vocab"]
        ignored += bool((~counted).any())
        shorter += case["vocab"] < case["width"]
    assert min(edges, ignored, shorter) > 5


def test_a_reduction_that_there_is_not_is_one_line() -> None:
    with pytest.raises(InvalidArgument, match=r"reductions=.*'median'.*mean, sum, none"):
        specs.cross_entropy(reductions=("median",))
