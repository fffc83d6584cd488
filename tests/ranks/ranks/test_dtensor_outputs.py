"""Outputs that a candidate leaves as DTensors: backward begins with gradients of their kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import tpcheck
from tests.ranks.diagnosis.test_examine import examined
from tpcheck import Case, Check, Layout, Spec, specs, strategies
from tpcheck.engines.engine import Engine
from tpcheck.evidence import PlacedOtherwise
from tpcheck.runner.runner import Runner
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import Verdict
from tpcheck.vocabulary import Kind


def head(case: Any, mesh: Any = None) -> nn.Module:
    model = nn.Sequential(nn.LayerNorm(case["h"]), nn.Linear(case["h"], case["v"], bias=False))
    if mesh is None:
        return model
    return parallelize_module(model, mesh["tp"], {"1": ColwiseParallel(use_local_output=False)})


def terms(case: Any, mesh: Any = None) -> nn.Module:
    model = nn.Sequential(nn.Linear(case["h"], case["v"], bias=False))
    style = RowwiseParallel(output_layouts=Partial(), use_local_output=False)
    return model if mesh is None else parallelize_module(model, mesh["tp"], {"0": style})


def spec(made: Callable[..., nn.Module], layout: Layout, **sizes: Any) -> Check:
    def cases(space: Any) -> Any:
        return strategies.cases(space, {"b": strategies.sizes(1, 3), **sizes})

    def inputs(case: Any, draw: Any) -> Any:
        return {"x": draw("x", case["b"], case["h"])}

    of = Spec(made.__name__, cases=cases, reference=made, inputs=inputs, layout=lambda _: layout)
    return Check(of, candidate=made)


CHECKS = [
    spec(
        head,
        Layout({"1.weight": tpcheck.Shard(0)}, outputs={"output": tpcheck.Shard(-1)}),
        h=strategies.sizes(2, 5),
        v=strategies.at_least("tp", 11),
    ),
    spec(
        terms,
        Layout(
            {"0.weight": tpcheck.Shard(1)},
            inputs={"x": tpcheck.Shard(-1)},
            outputs={"output": tpcheck.Partial()},
        ),
        h=strategies.multiples("tp"),
        v=strategies.sizes(2, 5),
    ),
]


@pytest.mark.parametrize("check", CHECKS, ids=["parts that are not equal", "terms of a sum"])
def test_right_code_that_returns_a_dtensor_passes(gloo: Engine, check: Check) -> None:
    result = Search(check, gloo, Options(examples=8, corpus=None)).run()
    assert (result.verdict, result.examples) == (Verdict.PASS, 8), result


# ---- terms that do not just add up


def of_each_rank(op: str) -> Callable[..., nn.Module]:
    """Every rank has the whole output, and says that it is a term of a mean or of a maximum."""

    class Linear(nn.Linear):
        mesh: Any = None

        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y if self.mesh is None else DTensor.from_local(y, self.mesh["tp"], [Partial(op)])

    def terms(case: Any, mesh: Any = None) -> nn.Module:
        linear = Linear(case["h"], 3)
        linear.mesh = mesh
        return linear

    return terms


@pytest.mark.parametrize("op", ["avg", pytest.param("max", marks=pytest.mark.sweep)])
def test_terms_of_a_mean_or_a_maximum(gloo: Engine, op: str) -> None:
    whole = Layout({"weight": tpcheck.Replicate(), "bias": tpcheck.Replicate()})
    check = spec(of_each_rank(op), whole, h=strategies.sizes(2, 5))
    result = Search(check, gloo, Options(examples=4, corpus=None)).run()
    assert (result.verdict, result.examples) == (Verdict.PASS, 4), result


def looked_up(case: Any, mesh: Any) -> nn.Module:
    """Each rank looks up what it has of the vocabulary: the rest is masked in the sum."""

    class Embedding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            rows = torch.zeros(case["vocab"], case["hidden"])
            self.weight = nn.Parameter(distribute_tensor(rows, mesh["tp"], [Shard(0)]))

        def forward(self, ids: Tensor) -> Tensor:
            whole = DTensor.from_local(ids, mesh["tp"], [Replicate()])
            return nn.functional.embedding(whole, self.weight)

    return Embedding()


def test_terms_of_a_masked_lookup(gloo: Engine) -> None:
    check = Check(specs.embedding(even=True), looked_up)
    result = Search(check, gloo, Options(examples=4, corpus=None)).run()
    assert (result.verdict, result.examples) == (Verdict.PASS, 4), result


# ---- of another placement than the layout's


def placed(own: Any, due: Any) -> Check:
    """Every rank computes the whole, and returns it as a DTensor that is placed so."""

    class Linear(nn.Linear):
        mesh: Any = None

        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            if self.mesh is None:
                return y
            whole = DTensor.from_local(y, self.mesh["tp"], [Replicate()])
            return whole if isinstance(own, Replicate) else whole.redistribute(placements=[own])

    def made(case: Any, mesh: Any = None) -> nn.Module:
        linear = Linear(case["h"], 4)
        linear.mesh = mesh
        return linear

    whole = {"weight": tpcheck.Replicate(), "bias": tpcheck.Replicate()}
    return spec(made, Layout(whole, outputs={"output": due}), h=strategies.sizes(4, 4))


@pytest.mark.parametrize(
    ("own", "due"),
    [
        (Replicate(), tpcheck.Shard(1)),
        (Shard(1), tpcheck.Replicate()),
        pytest.param(Shard(0), tpcheck.Shard(1), marks=pytest.mark.sweep),
        (Replicate(), tpcheck.Partial()),
    ],
)
def test_it_is_wrong_where_the_layout_has_its_parts_elsewhere(
    gloo: Engine, own: Any, due: Any
) -> None:
    """A plain tensor of that shape is, too; the values of each passed."""
    check = placed(own, due)
    found = examined(check, Case({"b": 4, "h": 4}, mesh={"tp": 2}, dtype="float64"), gloo)
    assert {(m.kind, type(m.detail)) for m in found.mismatches} == {(Kind.OUTPUT, PlacedOtherwise)}
    assert found.diagnosis.code == "wrong-placement"


def over_both(wrap: Callable[[Tensor, Any], Tensor], due: Any, grads: Any) -> Check:
    """What a rank computes whole on an ep × tp mesh, and returns in its own way."""

    class Linear(nn.Linear):
        mesh: Any = None

        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y if self.mesh is None else wrap(y, self.mesh)

    def made(case: Any, mesh: Any = None) -> nn.Module:
        linear = Linear(case["h"], 4)
        linear.mesh = mesh
        return linear

    whole = {"weight": tpcheck.Replicate(), "bias": tpcheck.Replicate()}
    of_sums = dict.fromkeys(("weight", "bias", "x"), grads)
    return spec(
        made, Layout(whole, outputs={"output": due}, grads=of_sums), h=strategies.sizes(4, 4)
    )


def by_hand(own: Any) -> Callable[[Tensor, Any], Tensor]:
    """Rows are cut along ep by hand, the rest is placed along tp."""

    def wrap(y: Tensor, mesh: Any) -> Tensor:
        rows = y.chunk(2)[mesh["ep"].get_local_rank()]
        return DTensor.from_local(rows, mesh["tp"], [Replicate()]).redistribute(placements=[own])

    return wrap


def terms_of(op: str) -> Callable[[Tensor, Any], Tensor]:
    def wrap(y: Tensor, mesh: Any) -> Tensor:
        one = mesh["ep", "tp"]._flatten("one")
        return DTensor.from_local(y / (4 if op == "sum" else 1), one, [Partial(op)])

    return wrap


ROWS = {"ep": tpcheck.Shard(0), "tp": tpcheck.Shard(1)}, {"ep": tpcheck.Partial()}
TERMS = ({"ep": tpcheck.Partial(), "tp": tpcheck.Partial()},) * 2


@pytest.mark.parametrize(
    ("wrap", "placed", "right"),
    [
        (by_hand(Shard(1)), ROWS, True),
        (by_hand(Replicate()), ROWS, False),
        pytest.param(by_hand(Shard(0)), ROWS, False, marks=pytest.mark.sweep),
        (terms_of("sum"), TERMS, True),
        (terms_of("avg"), TERMS, False),
    ],
)
def test_axes_by_hand_and_two_as_one(gloo: Engine, wrap: Any, placed: Any, right: bool) -> None:
    check, case = over_both(wrap, *placed), Case({"b": 4, "h": 4}, mesh={"ep": 2, "tp": 2})
    found = Runner(check, gloo).run(case)
    assert {type(m.detail) for m in found.causes} == (set() if right else {PlacedOtherwise}), found
