"""Terms of a sum that a module leaves to the one around it, which goes wrong after it took them, or
does not take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fixtures.parallel.collectives import (
    all_gather,
    all_reduce,
    conjugate,
    copy_to_tp,
    identity,
    reduce_from_tp,
    reduce_scatter,
)
from fixtures.parallel.linear import ColumnLinear
from fixtures.parallel.sharding import load_full
from tests.ranks.diagnosis.test_examine import examined
from tpcheck import Case, Check, Layout, Shard, Spec, specs
from tpcheck.engines.engine import Engine

#: (terms, group) → what is made of them.
Sum = Callable[[Tensor, Any], Tensor]

HIDDEN, INNER = 4, 6
CASE = Case(dims={"tokens": 3}, mesh={"tp": 2}, dtype="float32")


class MLP(nn.Module):
    """Two plain linear layers."""

    def __init__(self, inner: int, group: Any = None, total: Sum | None = None) -> None:
        super().__init__()
        self.group, self.total = group, total
        self.up = nn.Linear(HIDDEN, inner, bias=False)
        self.down = nn.Linear(inner, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x if self.total is None else copy_to_tp(x, self.group))
        y = self.down(h)
        return y if self.total is None else self.total(y, self.group)


def code(engine: Engine, total: Sum, module: Callable[..., nn.Module] = MLP) -> str:
    spec = Spec(
        name="summed",
        cases=[CASE],
        reference=lambda case: module(INNER),
        inputs=lambda case, draw: {"x": draw("x", case["tokens"], HIDDEN)},
        layout=lambda case: LAYOUTS[module],
    )

    def build(case: Case, mesh: Any) -> nn.Module:
        return module(INNER // case.tp, mesh["tp"].get_group(), total)

    return examined(Check(spec, build), CASE, engine).diagnosis.code


def overflowing(terms: Tensor, group: Any) -> Tensor:
    """On several ranks: on one it is right."""
    y = reduce_from_tp(terms, group)
    return torch.where(y == y.max(), torch.inf, y) if group.size() > 1 else y


def bent(terms: Tensor, group: Any) -> Tensor:
    return reduce_from_tp(terms, group).sin()


@pytest.mark.parametrize("wrong", [overflowing, bent])
def test_a_sum_that_was_taken_is_not_missing(gloo: Engine, wrong: Sum) -> None:
    assert code(gloo, wrong) == "unclassified"


def test_one_that_was_not_is(gloo: Engine) -> None:
    assert code(gloo, lambda terms, group: terms) == "missing-all-reduce"


class Numbered(nn.Module):
    """Two linear layers whose names differ by a number alone, which are not two of one kind."""

    def __init__(self, inner: int, group: Any = None, total: Sum | None = None) -> None:
        super().__init__()
        self.group, self.total = group, total
        self.fc1 = nn.Linear(HIDDEN, inner, bias=False)
        self.fc2 = nn.Linear(inner, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.total is None:
            return x + self.fc2(self.fc1(x))
        return self.total(self.fc2(self.fc1(copy_to_tp(x, self.group))), self.group)


def test_layers_of_other_names_are_not_each_others_like(gloo: Engine) -> None:
    """The residual is missing, not the sum."""
    assert code(gloo, reduce_from_tp, Numbered) == "unclassified"


class Scattered(ColumnLinear):
    """It keeps what it gathered in forward; what it sends back is negated."""

    def gather_input(self, x: Tensor) -> Tensor:
        sign = -1 if self.degree > 1 else 1
        return conjugate(
            x,
            forward=lambda x: all_gather(x, dim=1, group=self.group),
            backward=lambda g: sign * reduce_scatter(g, dim=1, group=self.group),
        )


def test_a_gather_that_no_gradient_lacks_is_not_missing(gloo: Engine) -> None:
    dims = {"batch": 2, "seq": 4, "in_features": 3, "out_features": 4, "bias": False}
    check = Check(
        specs.column_linear(sequence_parallel=True),
        lambda case, mesh: Scattered(
            3, 4, bias=False, group=mesh["tp"].get_group(), sequence_parallel=True
        ),
        load=load_full,
    )
    found = examined(check, Case(dims=dims, mesh={"tp": 2}, dtype="float64"), gloo)
    assert found.diagnosis.code == "unclassified"


class Normed(nn.Module):
    """A norm before a linear layer, to which a plain function passes gradients back."""

    def __init__(self, inner: int, group: Any = None, total: Sum | None = None) -> None:
        super().__init__()
        self.group, self.total = group, total
        self.norm = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, inner, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.copied(self.norm(x)))

    def copied(self, h: Tensor) -> Tensor:
        if (total := self.total) is None:
            return h
        return conjugate(h, forward=identity, backward=lambda g: total(g, self.group))


LAYOUTS: dict[Callable[..., nn.Module], Layout] = {
    Numbered: Layout(params={"fc1.weight": Shard(0), "fc2.weight": Shard(1)}),
    MLP: Layout(params={"up.weight": Shard(0), "down.weight": Shard(1)}),
    Normed: Layout(params={"up.weight": Shard(0)}, outputs={"output": Shard(-1)}),
}


def averaged(terms: Tensor, group: Any) -> Tensor:
    return all_reduce(terms, group=group) / group.size()


def spoiled(terms: Tensor, group: Any) -> Tensor:
    total = all_reduce(terms, group=group)
    return torch.where(total == total.max(), torch.inf, total) if group.size() > 1 else total


@pytest.mark.parametrize(
    ("total", "named"),
    [
        (averaged, "averaged-not-summed"),
        (lambda terms, group: 2 * all_reduce(terms, group=group), "unclassified"),
        (spoiled, "unwritten-memory"),
        (lambda terms, group: terms, "missing-all-reduce"),
    ],
    ids=["averaged", "doubled", "spoiled", "left"],
)
def test_terms_of_a_gradient_are_those_of_a_sum_that_nobody_took_or_not(
    gloo: Engine, total: Sum, named: str
) -> None:
    """Equal on all ranks, and together the reference: it was taken, and divided."""
    assert code(gloo, total, Normed) == named
