"""Origin: what runs inside a module knows which, in forward and in backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.comms.callsite import Origin


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
