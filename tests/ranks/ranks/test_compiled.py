"""Compiled candidates: run eagerly where their modules are watched, each with its own limits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fixtures.compositions import transformer, wrapped
from fixtures.mutants import compiled
from tests.candidates import DECODER, linear_dims
from tpcheck import Case, Check, specs
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict


def where(engine: Engine, candidate: Any, layers: int = 2) -> str | None:
    runner = Runner(Check(wrapped.compiling, candidate), engine)
    found = runner.run(Case(DECODER | {"layers": layers}))
    assert found.mismatches
    return examine_failure(runner, found).first_divergence


def compiled_with_a_faulty_layer(case: Case, mesh: Any) -> Any:
    model: Any = transformer.apply_tp(transformer.build(case), mesh["tp"])
    model.layers[1].mlp.register_forward_hook(lambda module, args, y: y * 1.5)
    return torch.compile(model, backend="aot_eager")


@pytest.mark.sweep
def test_a_faulty_layer_of_a_compiled_model_is_named(gloo: Engine) -> None:
    found = where(gloo, compiled_with_a_faulty_layer)
    assert found == "layers.1.mlp (forward); everything upstream agrees"


def test_a_fault_of_the_compiled_graph_is_said_to_be_there_alone(gloo: Engine) -> None:
    found = where(gloo, compiled.reductions_removed, layers=1)
    assert found == "output (forward), only where torch.compile is on"


def compiled_in_one_graph(case: Case, mesh: Any) -> Any:
    linear = nn.Linear(case["in_features"], case["out_features"], bias=False)
    return torch.compile(linear, backend="eager", fullgraph=True, dynamic=False)


def test_cases_of_many_shapes_do_not_share_a_limit_of_compilations(gloo: Engine) -> None:
    from torch._dynamo import config

    runner = Runner(Check(specs.row_linear(), compiled_in_one_graph), gloo)
    for batch in range(1, config.recompile_limit + 3):
        result = runner.run(Case(linear_dims(2, 2, batch=batch), mesh={"tp": 1}))
        assert result.verdict is Verdict.PASS, (batch, result.mismatches)
