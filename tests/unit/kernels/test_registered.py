"""Ops of `torch.library`: which calls are seen, with what, and what opcheck says of them."""

from typing import Any

import torch
from torch import Tensor

from tpcheck.kernels import registered
from tpcheck.kernels.registered import Calls, failures, is_of_user
from tpcheck.tensors.ops import lacks_backward, name_of, overload_of, within
from tpcheck.tensors.strides import lay_out
from tpcheck.vocabulary import OpTest

LIBRARY = "tpcheck_unit_ops"


@torch.library.custom_op(f"{LIBRARY}::twice", mutates_args=())
def twice(x: Tensor, times: int = 2) -> Tensor:
    return (x * times).contiguous()


@twice.register_fake
def _(x: Tensor, times: int = 2) -> Tensor:
    return torch.empty_like(x)  # with the strides of x


@torch.library.custom_op(f"{LIBRARY}::back", mutates_args=())
def back(dy: Tensor) -> Tensor:
    return dy * 2


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return twice(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return back(*grads)


def seen(function: Any, x: Tensor) -> Calls:
    calls = Calls()
    with calls.forwards():
        y = function(x)
    with calls.backwards():
        torch.autograd.backward([y], [torch.ones_like(y)])
    return calls


def test_calls_in_forward_and_backward_are_seen_once_each() -> None:
    calls = seen(lambda x: Twice.apply(Twice.apply(x)), torch.ones(2, 3, requires_grad=True))
    assert [name_of(op) for op in calls.first] == [f"{LIBRARY}::twice", f"{LIBRARY}::back"]
    assert not is_of_user("aten::mul") and is_of_user(f"{LIBRARY}::twice")


def test_inside_an_autograd_function_nothing_takes_a_gradient() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    (call, _) = seen(Twice.apply, x).first.values()
    assert not call.args[0].requires_grad
    calls = Calls()
    with calls.forwards():
        torch.ops.tpcheck_unit_ops.twice(x, times=3)
    (call,) = calls.first.values()
    assert call.args[0].requires_grad and call.args[0] is not x
    assert {**dict(enumerate(call.args[1:])), **call.kwargs} in ({0: 3}, {"times": 3})


def test_an_op_is_given_what_the_case_has_in_its_layout_and_no_giant() -> None:
    for memory in ("transposed", "padded", "giant"):
        x, calls = lay_out(torch.randn(3, 4), memory), Calls()
        with calls.forwards():
            twice(x)
        (call,) = calls.first.values()
        assert torch.equal(call.args[0], x)
        assert (call.args[0].stride() == x.stride()) == (memory != "giant")


def test_a_fake_kernel_that_keeps_strides_is_found_where_there_are_any() -> None:
    for memory, tests in (("contiguous", []), ("transposed", [OpTest.FAKE])):
        calls = Calls()
        with calls.forwards():
            twice(lay_out(torch.randn(3, 4), memory))
        (call,) = calls.first.values()
        found = list(failures(call, compiled=False, moved=0.0))
        assert [one.test for one in found] == tests


def test_what_an_op_is() -> None:
    packet = torch.ops.tpcheck_unit_ops.twice
    for op in (twice, packet, packet.default):
        assert name_of(op) == f"{LIBRARY}::twice" and lacks_backward(op)
        assert overload_of(op) is packet.default
    assert overload_of(torch.ops.aten.add) is None, "it has several"
    assert not lacks_backward(torch.relu) and within(torch.relu) is torch.relu


def test_a_process_without_ops_of_users_is_known(monkeypatch: Any) -> None:
    assert registered.any_of_user()
    monkeypatch.setattr(torch.library, "_defs", {"aten::x", "prims::y"})
    assert not registered.any_of_user()
