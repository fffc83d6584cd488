"""The trace beside the compiler: neither is in the other's way."""

from __future__ import annotations

import torch
import torch._dynamo
from torch import Tensor

from tpcheck.comms.trace import Recorder


def test_a_recorder_is_hidden_from_the_compiler() -> None:
    """Also where eager code runs between two compiled parts, which the mode sees."""
    compiled = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        compiled.append(graph)
        return graph.forward

    def eager(x: Tensor) -> Tensor:
        return x.cos() + inner(x)

    def inner(x: Tensor) -> Tensor:
        return x * 3

    between = torch.compiler.disable(eager, recursive=False)
    function = torch.compile(lambda x: between(x.sin()), backend=backend)
    with Recorder(0):
        assert torch.equal(function(torch.ones(2)), eager(torch.ones(2).sin()))
    operators = [[n.name for n in g.graph.nodes if n.op == "call_method"] for g in compiled]
    assert operators[0] == ["sin"]
    assert len(compiled) == 2  # and `inner`


def test_a_recorder_takes_no_wrapper_to_be_hidden() -> None:
    """It would take as long as the mode itself, for each operator."""
    with Recorder(0):
        assert not hasattr(Recorder.__torch_dispatch__, "__wrapped__")


def test_a_recorder_lets_the_compiler_compile() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x: x.sin() + 1, backend=backend, fullgraph=True)
    with Recorder(0):
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin() + 1)
    assert len(graphs) == 1
