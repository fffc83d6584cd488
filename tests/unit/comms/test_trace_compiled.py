"""The trace beside the compiler: neither is in the other's way."""

from __future__ import annotations

import torch
import torch._dynamo

from tpcheck.comms.trace import Recorder


def test_a_recorder_is_hidden_from_the_compiler_once() -> None:
    """Every wrapper more is a call more: after a few hundred cases there would be too many."""

    def depth() -> int:
        function, found = Recorder.__torch_dispatch__, 0
        while hasattr(function, "__wrapped__"):
            function, found = function.__wrapped__, found + 1
        return found

    with Recorder(0):
        first = depth()
    for _ in range(5):
        with Recorder(0):
            pass
    assert depth() == first


def test_a_recorder_lets_the_compiler_compile() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x: x.sin() + 1, backend=backend, fullgraph=True)
    with Recorder(0):
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin() + 1)
    assert len(graphs) == 1
