"""Compositions that `tests/test_properties.py` does not run: what is slow, and what it rests on."""

from __future__ import annotations

from pathlib import Path

import torch

from tpcheck.collect import collect
from tpcheck.engines.pool import Engine
from tpcheck.search import Options, Search
from tpcheck.trace import Recorder
from tpcheck.verdict import Verdict

COMPILE = Path(__file__).parent.parent / "properties" / "_frameworks" / "compile.py"


def test_a_compiled_model_is_right_and_its_collectives_are_seen(gloo: Engine) -> None:
    (check,) = collect([str(COMPILE)])
    search = Search(check, gloo, Options(examples=2, degrees=(2,), corpus=None))
    assert search.run().verdict is Verdict.PASS
    for result in search.results.values():
        phases = {event["phase"] for event in result.trace[0] if event["op"] == "all_reduce"}
        assert {"forward", "backward"} <= phases


def test_a_recorder_lets_the_compiler_compile() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x: x.sin() + 1, backend=backend, fullgraph=True)
    with Recorder(0):
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin() + 1)
    assert len(graphs) == 1
