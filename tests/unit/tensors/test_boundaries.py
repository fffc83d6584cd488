"""Borders: what goes into and comes out of each module is noted, and nothing is changed by it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tpcheck.tensors.boundaries import Border, Watch
from tpcheck.vocabulary import End, Phase


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3, bias=False).double()

    def forward(self, x: Tensor, *, scale: Tensor) -> tuple[Tensor, Tensor]:
        h = self.inner(x)
        return x + scale * h, h.detach()


def key(phase: Phase, module: str, call: int, side: End, slot: str) -> str:
    return Border(phase, module, call, side, slot).key


def run(module: Residual) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    x = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).requires_grad_()
    with Watch(module) as watch:
        y, _ = module(x, scale=torch.tensor(2.0, dtype=torch.float64))
        y.backward(torch.ones_like(y))
    assert x.grad is not None
    return watch.seen, x.grad, y.detach()


def test_borders_come_in_the_order_of_computation() -> None:
    seen, _, _ = run(Residual())
    borders = [Border.of(key) for key in seen]
    assert [(b.phase, b.module, b.side, b.slot) for b in borders] == [
        ("forward", "", "in", "0"),
        ("forward", "", "in", "scale"),
        ("forward", "inner", "in", "0"),
        ("forward", "inner", "out", "0"),
        ("forward", "", "out", "0"),
        ("forward", "", "out", "1"),
        ("backward", "", "out", "0"),
        ("backward", "inner", "out", "0"),
        ("backward", "inner", "in", "0"),
        ("backward", "", "in", "0"),
    ]
    assert [b.key for b in borders] == list(seen) and borders[2].parent == ""


def test_a_module_answers_for_its_own_gradient_alone() -> None:
    module = Residual()
    seen, grad, _ = run(module)
    ones = torch.ones(2, 3, dtype=torch.float64)
    assert torch.equal(
        seen[key(Phase.BACKWARD, "inner", 0, End.IN, "0")], 2 * ones @ module.inner.weight.detach()
    )
    assert torch.equal(seen[key(Phase.BACKWARD, "", 0, End.IN, "0")], grad)  # with the residual's


def test_watching_changes_no_value_and_ends() -> None:
    torch.default_generator.manual_seed(1)
    module = Residual()
    _, grad, y = run(module)
    x = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).requires_grad_()
    plain, _ = module(x, scale=torch.tensor(2.0, dtype=torch.float64))
    plain.backward(torch.ones_like(plain))
    assert torch.equal(plain, y) and x.grad is not None and torch.equal(x.grad, grad)
    assert not module._forward_hooks and not module.inner._forward_pre_hooks


def test_what_is_written_over_later_was_noted_before() -> None:
    module = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    with Watch(module) as watch, torch.no_grad():
        module(torch.tensor([-1.0, 1.0]))
    assert watch.seen[key(Phase.FORWARD, "0", 0, End.OUT, "0")].tolist() == [-1.0, 1.0]
    assert watch.seen[key(Phase.FORWARD, "1", 0, End.OUT, "0")].tolist() == [0.0, 1.0]


def test_each_call_of_a_module_has_borders_of_its_own() -> None:
    inner = nn.Identity()
    module = nn.Sequential()
    module.shared = inner
    module.forward = lambda x: inner(inner(x))  # type: ignore[method-assign]
    with Watch(module) as watch:
        module(torch.ones(1))
    assert {
        key(Phase.FORWARD, "shared", 0, End.OUT, "0"),
        key(Phase.FORWARD, "shared", 1, End.OUT, "0"),
    } <= set(watch.seen)


@pytest.mark.parametrize("module", ["", "a.b", "do|wn", 'q"uote', "a,b", "ü"])
def test_a_border_is_read_back_from_its_key_whatever_the_names(module: str) -> None:
    border = Border(Phase.BACKWARD, module, 3, End.IN, "sl|ot")
    assert Border.of(border.key) == border
