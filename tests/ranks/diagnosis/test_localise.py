"""Localisation: one faulty layer among eight, wrong in forward or in backward only, is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from torch import nn

from fixtures.parallel import collectives
from tests.candidates import STACK, stack
from tpcheck import Case, Check, specs
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.tensors.names import FIRST
from tpcheck.verdict import Verdict
from tpcheck.vocabulary import Code

LAYERS = 8


def down_without_all_reduce(block: Any) -> None:
    block.mlp.down.sum_output = collectives.identity


def residual_added_twice(block: Any) -> None:
    block.mlp.add_residual = lambda x, y: x + x + y


def queries_not_rotated(block: Any) -> None:
    block.attention.query = lambda h: block.attention.normalise_heads(
        block.attention.q_proj.project(h), block.attention.q_norm
    )


def output_averaged(block: Any) -> None:
    o_proj = block.attention.o_proj
    o_proj.sum_output = lambda y: type(o_proj).sum_output(o_proj, y) / o_proj.degree


def another_eps(block: Any) -> None:
    block.mlp.norm.eps = 1e-3


def mlp_without_backward_all_reduce(block: Any) -> None:
    block.mlp.copy_input = collectives.identity


def attention_without_backward_all_reduce(block: Any) -> None:
    block.attention.copy_input = collectives.identity


def down_reduces_its_gradient_too(block: Any) -> None:
    reduce = partial(collectives.all_reduce, group=block.mlp.down.group)
    block.mlp.down.sum_output = partial(collectives.conjugate, forward=reduce, backward=reduce)


def q_norm_gradient_partial(block: Any) -> None:
    block.attention.q_norm.sees_part = lambda: False


def norm_gradient_doubled(block: Any) -> None:
    norm = block.mlp.norm
    double = partial(
        collectives.conjugate, forward=collectives.identity, backward=lambda g: 2.0 * g
    )
    norm.used_weight = lambda: double(norm.weight)


Fault = Callable[[Any], None]
FORWARD: dict[Fault, str] = {  # → the module in which it is
    down_without_all_reduce: "mlp.down",
    residual_added_twice: "mlp",
    queries_not_rotated: "attention",
    output_averaged: "attention.o_proj",
    another_eps: "mlp.norm",
}
BACKWARD: dict[Fault, str] = {
    mlp_without_backward_all_reduce: "mlp",
    attention_without_backward_all_reduce: "attention",
    down_reduces_its_gradient_too: "mlp.down",
    q_norm_gradient_partial: "attention.q_norm",
    norm_gradient_doubled: "mlp.norm",
}


def check(fault: Fault | None, layer: int, everywhere: Fault | None = None) -> Check:
    """A stack with `fault` in one layer, and `everywhere` (a harmless edit) in all of them."""

    def build(case: Case, mesh: Any) -> nn.Module:
        module = stack(case, mesh)
        for block in module.blocks if everywhere is not None else ():
            everywhere(block)
        if fault is not None:
            fault(module.blocks[layer])
        return module

    return Check(specs.stack(), build, name="stack")


def case(seed: int) -> Case:
    """A random stack of eight small blocks."""
    draw = random.Random(seed)
    tp = draw.choice([2, 2, 4])
    heads = tp * draw.choice([1, 2])
    dims = {
        "layers": LAYERS,
        "batch": draw.choice([1, 2]),
        "seq": draw.choice([2, 3]),
        "hidden": draw.choice([4, 6]),
        "heads": heads,
        "kv_heads": draw.choice([1, heads]),
        "head_dim": 4,
        "intermediate": 2 * tp,
        "activation": draw.choice(["gelu", "swiglu"]),
        "norm": draw.choice(["layer", "rms"]),
        "bias": draw.choice([True, False]),
        "qk_norm": True,
        "rotary": True,
        "causal": draw.choice([True, False]),
    }
    return Case(dims=dims, mesh={"tp": tp}, dtype=draw.choice(["float64", "float32"]), seed=seed)


def where(engine: Engine, case: Case, *edits: Any) -> str | None:
    runner = Runner(check(*edits), engine)
    found = runner.run(case)
    assert found.verdict is Verdict.FAIL
    return examine_failure(runner, found).first_divergence


SEEDS = [0, *(pytest.param(s, marks=pytest.mark.sweep) for s in range(1, 20))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("phase", [pytest.param("forward", marks=pytest.mark.sweep), "backward"])
def test_the_faulty_layer_among_eight_is_named(gloo: Engine, phase: str, seed: int) -> None:
    draw = random.Random(f"{phase} {seed}")
    faults = FORWARD if phase == "forward" else BACKWARD
    fault, layer = draw.choice(list(faults)), draw.randrange(LAYERS)
    module = f"blocks.{layer}.{faults[fault]}"
    found = where(gloo, case(seed), fault, layer)
    assert found is not None, fault
    # in the first layer nothing tells a sum that nobody took from one that the parent takes
    named = found.startswith(f"{module} ({phase})") or f"where {module} leaves terms" in found
    assert named, (fault, module, found)


def norm_hands_on_twice_as_much(block: Any) -> None:
    """Correct: the MLP halves it again. Only the border in between is another."""
    mlp, norm = block.mlp, block.mlp.norm
    norm.normalise = lambda x, weight: 2.0 * type(norm).normalise(norm, x, weight)
    mlp.enter = lambda h: type(mlp).enter(mlp, h / 2.0)


SMALL = Case(dims=STACK, mesh={"tp": 2})


def test_a_border_that_differs_by_design_is_not_blamed(gloo: Engine) -> None:
    runner = Runner(check(None, 0, norm_hands_on_twice_as_much), gloo)
    assert runner.run(SMALL).verdict is Verdict.PASS
    found = where(gloo, SMALL, output_averaged, 1, norm_hands_on_twice_as_much)
    assert found == "blocks.1.attention.o_proj (forward); everything upstream agrees"


def test_a_passing_case_is_not_watched(gloo: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    run = Engine.run
    monkeypatch.setattr(
        Engine,
        "run",
        lambda self, key, work, *more: asked.append(work.watch) or run(self, key, work, *more),
    )
    assert Runner(check(None, 0), gloo).run(SMALL).verdict is Verdict.PASS
    where(gloo, SMALL, output_averaged, 1)
    # twice run, watched with its tensors, and alone, where it is right
    assert asked == [None, None, FIRST, FIRST]


def norm_rounds_otherwise_where_it_is_watched(block: Any) -> None:
    """Correct: so does what is cast on the way into a module."""
    norm = block.mlp.norm

    def normalise(x: Any, weight: Any) -> Any:
        hooked = norm._forward_hooks or norm._forward_pre_hooks
        return type(norm).normalise(norm, x, weight) * (1 + (2.0**-50 if hooked else 0.0))

    norm.normalise = normalise


def test_what_rounds_otherwise_where_it_is_watched_did_not_change(gloo: Engine) -> None:
    runner = Runner(check(output_averaged, 1, norm_rounds_otherwise_where_it_is_watched), gloo)
    failed = runner.run(SMALL)
    told = examine_failure(runner, failed)
    assert told.diagnosis.code is Code.AVERAGED_NOT_SUMMED, told.diagnosis.message
