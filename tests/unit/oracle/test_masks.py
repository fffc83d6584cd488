"""The reference's random masks: one of each draw, the same in every run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tpcheck import Layout, Spec, specs
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.expected import evaluate
from tpcheck.oracle.pose import pose
from tpcheck.protocol.bundle import read_bundle, write_bundle
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.masks import Chance
from tpcheck.vocabulary import Kind

CASE = Case(mesh={"tp": 2}, seed=3, microbatches=2, step=True)


class Drops(nn.Module):
    """Two masks in a forward, of two rates."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.up(F.dropout(x, 0.5)), 0.25)


class Recomputes(Drops):
    """The same; backward computes the forward again."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(super().forward, x, use_reentrant=False)
        return y


class Redraws(Drops):
    """The same; the second forward draws other masks."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(super().forward, x, use_reentrant=False, preserve_rng_state=False)
        return y


class RedrawsInACond(Drops):
    """torch computes the forward of one again."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x)
        given: Tensor = torch.cond(y.sum() > -1e9, lambda t: F.dropout(t, 0.5), torch.sin, (y,))
        return given


def spec(reference: Any = Drops, **more: Any) -> Spec:
    return Spec(
        name="drops",
        cases=[CASE],
        reference=lambda case: reference(),
        inputs=lambda case, draw: {"x": draw("x", 16, 4)},
        layout=lambda case: Layout(),
        **more,
    )


def values(problem: Problem) -> dict[tuple[str, str], Tensor]:
    return {(t.kind, t.name): t.value for t in problem.targets}


def test_each_forward_has_masks_of_its_own_and_so_has_the_one_after_the_step() -> None:
    problem = pose(spec(), CASE).problems[0]
    assert list(problem.masks) == ["", "@1", "@step"]
    for masks in problem.masks.values():
        assert [m.chance for m in masks] == [Chance(0.5), Chance(0.75)]
        assert [tuple(m.true.shape) for m in masks] == [(16, 4), (16, 8)]
    drawn = [masks[1].true for masks in problem.masks.values()]
    assert not torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    dropped = values(problem)[Kind.OUTPUT, "output@1"] == 0
    assert torch.equal(dropped, ~drawn[1])


def test_masks_come_from_the_case_alone() -> None:
    torch.manual_seed(1)
    first = pose(spec(), CASE).problems[0].masks
    torch.manual_seed(2)
    again = pose(spec(), replace(CASE, dtype="bfloat16", mesh={"tp": 4})).problems[0].masks
    other = pose(spec(), replace(CASE, seed=4)).problems[0].masks
    assert all(torch.equal(a.true, b.true) for a, b in zip(first["@1"], again["@1"], strict=True))
    assert not torch.equal(first["@1"][1].true, other["@1"][1].true)


def test_each_dp_coordinate_has_masks_of_its_own() -> None:
    one, other = pose(spec(), replace(CASE, mesh={"dp": 2, "tp": 2}, step=False)).problems
    assert not torch.equal(one.masks[""][1].true, other.masks[""][1].true)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_what_is_dropped_is_no_rounding(dtype: str) -> None:
    """A candidate with other masks would be far outside of what rounding may do."""
    case = replace(CASE, dtype=dtype, step=False)
    problem = pose(spec(), case).problems[0]
    target = next(t for t in problem.targets if t.name == "output")
    assert target.spread.sigma.max() < 0.02 * target.value.abs().max()


def test_a_reference_that_computes_its_forward_again_has_the_masks_of_the_first_time() -> None:
    plain, again = (values(pose(spec(of), CASE).problems[0]) for of in (Drops, Recomputes))
    assert plain.keys() == again.keys()
    for key, value in plain.items():
        torch.testing.assert_close(again[key], value)


def test_the_reference_can_be_asked_again_with_the_masks_that_it_had() -> None:
    problem = pose(spec(), replace(CASE, step=False)).problems[0]
    (found,) = evaluate(spec(), replace(CASE, step=False), problem)
    torch.testing.assert_close(
        found[Kind.PARAM_GRAD, "up.weight"], values(problem)[Kind.PARAM_GRAD, "up.weight"]
    )


def test_a_reference_without_dropout_draws_no_mask() -> None:
    dims = {"batch": 2, "seq": 3, "hidden": 6, "intermediate": 8, "activation": "swiglu"}
    dims |= {"norm": "layer", "residual": True, "bias": True}
    for more, masks in (({}, 0), ({"dropout": 0.5}, 1)):
        problem = pose(specs.mlp(dropout=(0.5,)), Case(dims=dims | more)).problems[0]
        assert len(problem.masks.get("", ())) == masks


def test_the_bundle_brings_masks_to_the_ranks(tmp_path: Path) -> None:
    posed = pose(spec(), replace(CASE, mesh={"dp": 2, "tp": 2}, step=False))
    write_bundle(posed.problems, tmp_path / "bundle")
    entries = {(t.kind, t.name): t.entry for t in posed.problems[0].targets}
    for problem in posed.problems:
        found = read_bundle(tmp_path / "bundle", problem.d, entries, "cpu").masks
        assert found.keys() == problem.masks.keys()
        for suffix, masks in problem.masks.items():
            assert [m.chance for m in found[suffix]] == [m.chance for m in masks]
            for mine, theirs in zip(found[suffix], masks, strict=True):
                assert torch.equal(mine.true, theirs.true)


class KeepsItsOwn(Drops):
    """Drops by numbers of a generator of its own, which goes on from run to run."""

    def __init__(self) -> None:
        super().__init__()
        self.own = torch.Generator().manual_seed(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x) * (torch.rand(8, generator=self.own) > 0.5)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_generator_of_the_reference_s_own_is_refused_in_any_dtype(dtype: str) -> None:
    """The one in the case's dtype is another module, and draws the same."""
    with pytest.raises(InvalidArgument, match="gives other numbers for 'output'"):
        pose(spec(KeepsItsOwn), replace(CASE, dtype=dtype))


@pytest.mark.filterwarnings("ignore")  # torch's own, of `torch.cond`
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("reference", [Redraws, RedrawsInACond])
def test_a_reference_with_other_masks_in_backward_is_refused(reference: Any, dtype: str) -> None:
    """Its gradients are not those of what it returns: a right candidate has others."""
    with pytest.raises(InvalidArgument, match="draws another random mask in backward"):
        pose(spec(reference), replace(CASE, dtype=dtype))


class Restores(torch.autograd.Function):
    """Dropout at 0.5 whose backward draws its mask once more, from the same state, in parts."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: int) -> Tensor:
        ctx.state, ctx.parts = torch.get_rng_state(), parts
        return x * (torch.rand(x.shape) < 0.5)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            sizes = [len(part) for part in torch.arange(gradient.numel()).chunk(ctx.parts)]
            mask = torch.cat([torch.rand(size) < 0.5 for size in sizes])
        return gradient * mask.view(gradient.shape), None


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_mask_that_is_drawn_again_in_another_shape_or_in_parts_is_the_same(parts: int) -> None:
    class Keeps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = Restores.apply(x, parts)
            return y

    found = values(pose(spec(Keeps), replace(CASE, step=False)).problems[0])
    for at in ("", "@1"):
        dropped = found[Kind.OUTPUT, f"output{at}"] == 0
        assert dropped.any() and torch.equal(found[Kind.INPUT_GRAD, f"x{at}"] == 0, dropped)
