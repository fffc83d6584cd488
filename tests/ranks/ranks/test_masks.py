"""Random masks of a candidate: whatever it is written with, they are read, compared between the
ranks, and given way to the reference's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn import functional as F

import tpcheck
from tpcheck import Argument, Case, Check, Layout, Spec, kernel_check
from tpcheck import Shard as Sharded
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.evidence import (
    MaskOfOtherShape,
    MaskRepeated,
    MasksAgree,
    MasksCounted,
    MasksDiffer,
    OtherRate,
)
from tpcheck.runner.runner import Runner
from tpcheck.tensors.masks import TELLING
from tpcheck.verdict import CaseResult, Verdict

CASE = Case(mesh={"tp": 2}, microbatches=2, step=True, dtype="float32")
RATE = 0.25


class Reference(nn.Module):
    """Drops what it multiplies."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x * self.weight, RATE, self.training)


def check(
    drop: Callable[[Tensor, Any], Tensor],
    *,
    split: bool = False,
    sizes: tuple[int, ...] = (4, 5, 16),
    **more: Any,
) -> Check:
    """Of a candidate that does the same with `drop(x, mesh)`, on all of it or on columns."""

    class Candidate(nn.Module):
        def __init__(self, mesh: Any) -> None:
            super().__init__()
            self.mesh = mesh
            self.weight = nn.Parameter(torch.empty(16 // (mesh.size() if split else 1)))

        def forward(self, x: Tensor) -> Tensor:
            return drop(x * self.weight, self.mesh)

    own: dict[str, Any] = {"x": Sharded(2)} if split else {}
    layout = Layout(
        params={"weight": Sharded(0) if split else tpcheck.Replicate()},
        inputs=own,
        outputs={"output": Sharded(2)} if split else {},
    )
    spec = Spec(
        name="drops",
        cases=[CASE],
        reference=lambda case: Reference(),
        inputs=lambda case, draw: {"x": draw("x", *sizes)},
        layout=lambda case: layout,
    )
    return Check(spec, lambda case, mesh: Candidate(mesh), **more)


def details(result: CaseResult) -> list[Any]:
    return [m.detail for m in result.mismatches if m.kind == "mask"]


def own_seed(drop: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    """Each rank draws on from a seed of its own."""

    def dropped(x: Tensor, mesh: Any) -> Tensor:
        if not hasattr(mesh, "own"):
            mesh.own = torch.Generator().manual_seed(100 + mesh.get_local_rank()).get_state()
        shared = torch.get_rng_state()
        torch.set_rng_state(mesh.own)
        y = drop(x)
        mesh.own = torch.get_rng_state()
        torch.set_rng_state(shared)
        return y

    return dropped


def plain(x: Tensor) -> Tensor:
    return F.dropout(x, RATE)


RIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": plain,
    "module": lambda x: nn.Dropout(RATE)(x),
    "native": lambda x: torch.native_dropout(x, RATE, True)[0],
    "bernoulli": lambda x: x * torch.bernoulli(torch.full_like(x, 1 - RATE)) / (1 - RATE),
    "what is dropped": lambda x: x * (1 - torch.empty_like(x).bernoulli_(RATE)) / (1 - RATE),
    "above": lambda x: x * (torch.rand_like(x) > RATE) / (1 - RATE),
    "masked_fill": lambda x: x.masked_fill(torch.rand(x.shape) < RATE, 0.0) / (1 - RATE),
}


@pytest.mark.parametrize("name", RIGHT)
def test_however_it_is_written(gloo: Engine, name: str) -> None:
    drop = RIGHT[name]
    whole = Runner(check(lambda x, mesh: drop(x)), gloo).run(CASE)
    assert not whole.mismatches and whole.counts
    parts = Runner(check(own_seed(drop), split=True), gloo).run(CASE)
    assert not parts.mismatches
    # the twins: the other way round
    assert max(parts.telling.values()) >= TELLING and not whole.telling
    (apart,) = {type(d) for d in details(Runner(check(own_seed(drop)), gloo).run(CASE))}
    assert apart is MasksDiffer
    alike = Runner(check(lambda x, mesh: drop(x), split=True), gloo).run(CASE)
    assert {type(d) for d in details(alike)} == {MasksAgree}


def test_dtensors_are_torchs_to_coordinate(gloo: Engine) -> None:
    """On the CPU it does not, and says so; their values are compared all the same."""

    def placed(entry: Any) -> Callable[[Tensor, Any], Tensor]:
        return lambda x, mesh: F.dropout(DTensor.from_local(x, mesh, [entry]), RATE).to_local()

    assert not Runner(check(placed(Replicate())), gloo).run(CASE).mismatches
    assert not Runner(check(placed(Shard(2)), split=True), gloo).run(CASE).mismatches
    twice = Runner(check(lambda x, mesh: placed(Replicate())(2 * x, mesh)), gloo).run(CASE)
    assert {m.kind for m in twice.mismatches} >= {"output", "param_grad"}


def test_a_candidate_in_eval_mode_draws_none(gloo: Engine) -> None:
    found = Runner(check(lambda x, mesh: x), gloo).run(CASE)
    assert details(found)[0] == MasksCounted(0, 1)


def test_a_mask_too_many(gloo: Engine) -> None:
    found = Runner(check(lambda x, mesh: plain(plain(x))), gloo).run(CASE)
    assert details(found)[0] == MasksCounted(2, 1)


def test_another_rate(gloo: Engine) -> None:
    detail = details(Runner(check(lambda x, mesh: F.dropout(x, 0.4)), gloo).run(CASE))[0]
    assert isinstance(detail, OtherRate)
    assert (detail.chance, detail.expected) == (0.6, 0.75)


def test_another_shape(gloo: Engine) -> None:
    found = Runner(check(lambda x, mesh: x * plain(torch.ones_like(x[:, :1]))), gloo).run(CASE)
    detail = details(found)[0]
    assert isinstance(detail, MaskOfOtherShape)
    assert (detail.shape, detail.expected_shape) == ((4, 1, 16), (4, 5, 16))


READ: dict[str, Callable[[Tensor], Tensor]] = {
    "tokens before batch": lambda x: plain(x.transpose(0, 1)).transpose(0, 1),
    "columns first": lambda x: plain(x.permute(2, 0, 1)).permute(1, 2, 0),
    "tokens in one dim": lambda x: plain(x.flatten(0, 1)).view(x.shape),
    "tokens in one dim, before batch": lambda x: (
        plain(x.transpose(0, 1).flatten(0, 1)).unflatten(0, (x.shape[1], -1)).transpose(0, 1)
    ),
    "heads": lambda x: plain(x.unflatten(2, (2, -1))).flatten(2),
    "all in one dim": lambda x: plain(x.flatten()).view(x.shape),
}


#: All dims of one size, which says least, and of another, and what is in between.
SIZES = [(16, 16, 16), (4, 5, 16), (4, 4, 16), (2, 4, 16)]
LEAST = ("tokens in one dim", "heads", "all in one dim")
NOT_EACH_RUN = ("columns first", "heads")
EACH_RUN = [
    (name, SIZES[0] if name in LEAST else SIZES[1]) for name in READ if name not in NOT_EACH_RUN
]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        one if one in EACH_RUN else pytest.param(*one, marks=pytest.mark.sweep)
        for one in product(READ, SIZES)
    ],
)
def test_dims_in_another_order_or_folded(gloo: Engine, name: str, sizes: tuple[int, ...]) -> None:
    """Also where sizes do not say which dim is which."""
    drop = READ[name]
    whole = Runner(check(lambda x, mesh: drop(x), sizes=sizes), gloo).run(CASE)
    assert not whole.mismatches and whole.counts
    parts = Runner(check(own_seed(drop), split=True, sizes=sizes), gloo).run(CASE)
    assert not parts.mismatches
    (apart,) = {
        type(d) for d in details(Runner(check(own_seed(drop), sizes=sizes), gloo).run(CASE))
    }
    assert apart is MasksDiffer
    alike = Runner(check(lambda x, mesh: drop(x), split=True, sizes=sizes), gloo).run(CASE)
    assert {type(d) for d in details(alike)} == {MasksAgree}
    # wrong in another way, under every reading
    wrong = Runner(check(lambda x, mesh: drop(x) * 1.01, sizes=sizes), gloo).run(CASE)
    assert {m.kind for m in wrong.mismatches} >= {"output", "param_grad"}


def test_the_same_mask_in_every_forward(gloo: Engine) -> None:
    def drop(x: Tensor, mesh: Any) -> Tensor:
        torch.manual_seed(3)
        return plain(x)

    found = {type(d) for d in details(Runner(check(drop), gloo).run(CASE))}
    assert found == {MaskRepeated}


def test_what_can_not_be_compared_is_said_in_a_line(gloo: Engine, threads: Engine) -> None:
    fine = check(lambda x, mesh: plain(x))
    with pytest.raises(InvalidArgument, match="random masks, which the threads engine can't"):
        Runner(fine, threads).run(CASE)
    scheduled = replace(fine, schedule=lambda module, passes, seeds: [])
    with pytest.raises(InvalidArgument, match="random masks, which a check with schedule= can't"):
        Runner(scheduled, gloo).run(CASE)


def test_a_kernel_check_has_no_masks(gloo: Engine) -> None:
    kernel = kernel_check(plain, reference=plain, arguments={"x": Argument("n")}, name="drops")
    with pytest.raises(InvalidArgument, match="random masks, which a kernel check can't compare"):
        Runner(kernel, gloo).run(Case(dims={"n": 8}, mesh={"tp": 1}))


def _in_one_kernel(x: Tensor, mesh: Any) -> Tensor:
    """Attention of which everything is one kernel's, as on a GPU."""
    q = x.unsqueeze(1)
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return fused(q, q, q, RATE, False)[0].squeeze(1)


def test_a_mask_that_is_drawn_inside_a_kernel_is_not_judged(gloo: Engine) -> None:
    result = Runner(check(_in_one_kernel), gloo).run(CASE)
    assert result.verdict is Verdict.UNKNOWN and result.mismatches == []
    assert "_scaled_dot_product_flash_attention_for_cpu" in str(result.unknown)
    assert "sdpa_kernel(SDPBackend.MATH)" in str(result.unknown)
