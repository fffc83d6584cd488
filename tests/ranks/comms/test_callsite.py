"""Origin: a collective is told the module that it came from, in forward and in backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fixtures.parallel import collectives
from fixtures.parallel.block import Stack
from tests.ranks.diagnosis.test_localise import SMALL
from tpcheck import Case, Check, specs
from tpcheck.comms.callsite import Origin
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.report.text import describe
from tpcheck.runner.runner import Runner
from tpcheck.specs.block import block_dims
from tpcheck.verdict import Verdict


class Asks(torch.autograd.Function):
    """Notes where it runs, in forward and in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, origin: Origin, heard: list[str]) -> Tensor:
        ctx.ask = lambda: heard.append(origin.module())
        ctx.ask()
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.ask()
        return grad, None, None


class Inner(nn.Module):
    def __init__(self, origin: Origin, heard: list[str]) -> None:
        super().__init__()
        self.origin, self.heard = origin, heard
        self.weight = nn.Parameter(torch.ones(2))
        self.weight.register_hook(lambda grad: heard.append(f"hook of {origin.module()}"))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = Asks.apply(x, self.origin, self.heard)
        return y * self.weight


def test_the_module_is_known_on_the_stack_and_from_the_node(followed: bool = True) -> None:
    origin, heard = Origin(), []
    module = nn.Sequential(Inner(origin, heard), nn.Sequential(nn.ReLU(), Inner(origin, heard)))
    origin.know(module)
    origin.follow(module)
    y = module(torch.ones(2, requires_grad=True))
    assert heard == ["0", "1.1"]
    y.sum().backward()
    assert heard[2:] == ["hook of 1.1", "1.1", "hook of 0", "0"]
    assert origin.module() == ""  # outside


def test_without_following_backward_knows_parameters_alone() -> None:
    origin, heard = Origin(), []
    module = nn.Sequential(Inner(origin, heard))
    origin.know(module)
    module(torch.ones(2, requires_grad=True)).sum().backward()
    assert heard == ["0", "hook of 0", ""] and not module[0]._forward_hooks


def refusing(phase: str) -> Check:
    """One rank reduces something else in the second layer's `down`, in forward or backward."""

    def build(case: Case, mesh: Any) -> nn.Module:
        dims: Any = block_dims(case)
        stack = Stack(case["layers"], **dims, group=mesh["tp"].get_group())
        down: Any = stack.blocks[1].mlp.down

        def odd(x: Tensor) -> Tensor:
            wide = torch.cat([x, x]) if down.rank == 1 else x
            return collectives.all_reduce(wide, group=down.group)[: len(x)]

        steps = {"forward": collectives.identity, "backward": collectives.identity} | {phase: odd}
        down.sum_output = lambda partial: collectives.conjugate(partial, **steps)
        return stack

    return Check(specs.stack(), build, name="stack")


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_refused_collective_names_its_module(gloo: Engine, phase: str) -> None:
    runner = Runner(refusing(phase), gloo)
    found = runner.run(SMALL)
    assert found.verdict is Verdict.FAIL
    examined = examine_failure(runner, found)
    assert examined.first_divergence == f"blocks.1.mlp.down ({phase})"
    assert examined.diagnosis.code == "collective-mismatch"
    text = describe(examined.mismatches[0])
    assert text.count(f"in {phase} of blocks.1.mlp.down at ") == 4  # who enters what, each rank
