"""Operators of higher order, as `torch.cond`, run under each mode of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.split import SplitProducts
from tpcheck.comms.trace import Recorder
from tpcheck.diagnosis.hypotheses.scales import _Roundings
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.masks import Masking
from tpcheck.oracle.producers import Producers
from tpcheck.ranks.reading import Reading
from tpcheck.tensors.dispatch import Dispatch, eagerly
from tpcheck.vocabulary import Phase


def chosen(x: Tensor) -> Tensor:
    found: Tensor = torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))
    return found


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    """What is compiled under one mode is kept, and may fail under another, or without one."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def counting() -> Recorder:
    recorder = Recorder(0)
    recorder.witnesses = frozenset({"aten::add"})
    return recorder


@pytest.mark.parametrize(
    "make",
    [
        lambda: Recorder(0),
        counting,
        lambda: Masking(0, None),
        lambda: SplitProducts(2),
        lambda: Producers(torch.float32),
        lambda: Reading(Path("nowhere")),
        _Roundings,
    ],
)
def test_one_runs_as_without_a_mode(make: Callable[[], Any]) -> None:
    x = torch.ones(3)
    with make():
        assert torch.equal(chosen(x), x + 1)
        assert torch.equal(chosen(-x), -x - 1)


@pytest.mark.filterwarnings("ignore")  # torch's own
@pytest.mark.parametrize(
    "make",
    [
        counting,
        lambda: Producers(torch.float32),
        lambda: SplitProducts(2),
        lambda: Masking(0, None),
        eagerly,
    ],
)
def test_one_has_a_backward_under_what_leaves_the_compiler_alone(make: Callable[[], Any]) -> None:
    x = torch.ones(3, requires_grad=True)
    with make():
        chosen(2 * x).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full((3,), 2.0))


def test_what_one_rounds_is_what_its_parts_do_or_not_known() -> None:
    noise = RoundingNoise(Arithmetic(torch.float32, 2), torch.Generator())
    x = torch.ones(3, dtype=torch.float64)
    with eagerly(), noise:
        off = chosen(x) - 2
        assert 0 < float(off.abs().max()) < 1e-6
        with pytest.raises(InvalidArgument, match="how far map_impl may round"):
            map_rows(torch.tanh, x)


@pytest.mark.filterwarnings("ignore")  # torch's own
def test_what_one_runs_is_counted_drawn_and_repeated() -> None:
    def drops(x: Tensor) -> Tensor:
        found: Tensor = torch.cond(x.sum() > 0, lambda t: F.dropout(t, 0.5), torch.neg, (x,))
        return found

    def thrice(x: Tensor) -> Tensor:
        start = torch.tensor(0), x
        last: Tensor = while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t + 2), start)[1]
        return last

    x, recorder, masking = torch.ones(64), counting(), Masking(0, None)
    with recorder:
        found = thrice(x)
    assert torch.equal(found, x + 6)
    assert recorder.counted[Phase.BUILD, "aten::add"] == 6
    with masking:
        first = drops(x)
    assert len(masking.drawn) == 1
    with Masking(5, masking.drawn):
        assert torch.equal(drops(x), first)


@pytest.mark.parametrize("make", [eagerly, lambda: Masking(0, None)])
def test_nothing_is_compiled_meanwhile(make: Callable[[], Any]) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    function = torch.compile(lambda x: x.sin() + 1, backend=backend)
    with make():
        function(torch.ones(2))
    assert not graphs
    function(torch.ones(2))
    assert graphs


def test_no_mode_is_compiled_itself() -> None:
    """Once Dynamo is there, it would compile each of them up to its limit, with a warning."""

    class Own(Dispatch):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    function = torch.compile(lambda x: x.sin() + 1, backend="aot_eager")
    torch._dynamo.utils.counters.clear()
    with Own():
        for n in range(2, 14):
            function(torch.ones(n))
    assert not torch._dynamo.utils.counters["frames"]
