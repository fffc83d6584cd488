"""Compiled candidates: found to be so, and run eagerly where their modules are watched."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fixtures.compositions import transformer, wrapped
from fixtures.mutants import compiled
from tpcheck import Case, Check, specs
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.ranks.compiled import compiles, eagerly
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict

DIMS = {
    "batch": 2, "seq": 3, "layers": 2, "hidden": 4, "head_dim": 2, "kv_heads": 2, "heads": 4,
    "intermediate": 4, "bias": True,
}  # fmt: skip


class Decorated(nn.Module):
    @torch.compile(backend="eager")
    def forward(self, x: Any) -> Any:
        return x + 1


class Holds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.run = torch.compile(lambda x: x + 1, backend="eager")


class Disabled(nn.Module):
    @torch.compiler.disable
    def forward(self, x: Any) -> Any:
        return x + 1


def compiled_in_place() -> nn.Module:
    linear = nn.Linear(2, 2)
    linear.compile(backend="eager")
    return linear


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.compile(nn.Linear(2, 2), backend="eager"),
        lambda: nn.Sequential(compiled_in_place()),
        lambda: nn.Sequential(Holds()),
        Decorated,
    ],
    ids=["module", "in-place", "function", "decorated"],
)
def test_what_is_compiled_is_seen(make: Any) -> None:
    assert compiles(make())
    assert not compiles(nn.Sequential(nn.Linear(2, 2), Disabled()))


def test_nothing_is_compiled_meanwhile() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    function = torch.compile(lambda x: x.sin() + 1, backend=backend)
    with eagerly():
        function(torch.ones(2))
    assert not graphs
    function(torch.ones(2))
    assert graphs


def where(engine: Engine, candidate: Any) -> str | None:
    runner = Runner(Check(wrapped.compiling, candidate), engine)
    found = runner.run(Case(DIMS))
    assert found.mismatches
    return examine_failure(runner, found).first_divergence


def compiled_with_a_faulty_layer(case: Case, mesh: Any) -> Any:
    model: Any = transformer.apply_tp(transformer.build(case), mesh["tp"])
    model.layers[1].mlp.register_forward_hook(lambda module, args, y: y * 1.5)
    return torch.compile(model, backend="aot_eager")


def test_a_faulty_layer_of_a_compiled_model_is_named(gloo: Engine) -> None:
    found = where(gloo, compiled_with_a_faulty_layer)
    assert found == "layers.1.mlp (forward); everything upstream agrees"


def test_a_fault_of_the_compiled_graph_is_said_to_be_there_alone(gloo: Engine) -> None:
    found = where(gloo, compiled.reductions_removed)
    assert found == "output (forward), only where torch.compile is on"


def compiled_in_one_graph(case: Case, mesh: Any) -> Any:
    linear = nn.Linear(case["in_features"], case["out_features"], bias=False)
    return torch.compile(linear, backend="eager", fullgraph=True, dynamic=False)


def test_cases_of_many_shapes_do_not_share_a_limit_of_compilations(gloo: Engine) -> None:
    from torch._dynamo import config

    runner = Runner(Check(specs.row_linear(), compiled_in_one_graph), gloo)
    for batch in range(1, config.recompile_limit + 3):
        dims = {"batch": batch, "seq": 2, "in_features": 2, "out_features": 2, "bias": False}
        result = runner.run(Case(dims, mesh={"tp": 1}))
        assert result.verdict is Verdict.PASS, (batch, result.mismatches)
