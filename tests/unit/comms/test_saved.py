"""What is noted of the tensors that autograd saves."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from tpcheck.comms.saved import Saved


@pytest.mark.parametrize("bits", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_nothing_is_held_once_a_forward_is_over_whether_backward_came_or_not(
    bits: bool, backward: bool
) -> None:
    module, x = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh()), torch.ones(2, 3)
    saved = Saved()
    with saved.watch(bits=bits):
        y = module(x)
    if backward:
        y.sum().backward()
    held = [*(weakref.ref(parameter) for parameter in module.parameters()), weakref.ref(saved)]
    del module, saved, x, y
    gc.collect()
    assert [ref() for ref in held] == [None] * 3


def test_gradients_of_gradients_are_those_without() -> None:
    def second(saved: Saved | None) -> list[torch.Tensor]:
        torch.manual_seed(0)
        module, x = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh()), torch.randn(2, 3)
        x.requires_grad_()
        with saved.watch(bits=True) if saved else torch.enable_grad():
            y = module(x).pow(2).sum()
            (first,) = torch.autograd.grad(y, x, create_graph=True)
            first.pow(2).sum().backward()
        return [x.grad, *(parameter.grad for parameter in module.parameters())]  # type: ignore[list-item]

    saved = Saved()
    watched, alone = second(saved), second(None)
    assert all(map(torch.equal, watched, alone)) and not saved.overwritten


def test_what_changed_before_backward_asked_for_it_is_told() -> None:
    saved, x = Saved(), torch.ones(2, 3, requires_grad=True)
    with saved.watch(bits=True):
        y = torch.tanh(x)
    y.detach().data.mul_(2)
    y.sum().backward()
    assert len(saved.overwritten) == 1


@pytest.mark.parametrize("trains", [True, False])
def test_running_statistics_that_a_forward_moves_are_not_told(trains: bool) -> None:
    module, x = torch.nn.BatchNorm1d(3).train(trains), torch.randn(4, 3, requires_grad=True)
    saved = Saved()
    with saved.watch(module, bits=True):
        y = module(x)
    assert module.running_mean is not None
    module.running_mean.add_(1)  # as a second microbatch does
    y.sum().backward()
    assert bool(saved.overwritten) is not trains


@pytest.mark.filterwarnings("ignore")  # torch's own
def test_what_an_operator_of_higher_order_is_traced_with_is_not_one() -> None:
    torch._dynamo.reset()
    saved, x = Saved(), torch.ones(3, requires_grad=True)
    with saved.watch(bits=True):
        y = torch.cond(x.sum() > 0, torch.tanh, torch.neg, (x,))
        y = torch.tanh(y)
    assert not saved.holds([torch.ones(3)]) and saved.holds([y])
    y.sum().backward()
    torch._dynamo.reset()
    assert not saved.overwritten
