"""An optimizer by the names of its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tpcheck.errors import InvalidArgument
from tpcheck.protocol.optimizing import Mains, Optimizing, once, parameter_of


class Own:
    """An optimizer that is not torch's."""

    def __init__(self, parameter: nn.Parameter) -> None:
        kept = {"sum": torch.ones(2), "count": 3, "name": "p", "on": True}
        kept["pair"] = (torch.zeros(1), {"inside": torch.ones(1)})
        self.state, self.taken = {parameter: kept}, []

    def zero_grad(self) -> None:
        self.taken.append("zero")

    def step(self) -> None:
        self.taken.append("step")


class WithoutState:
    def zero_grad(self) -> None: ...

    def step(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        (None, "no step(), no zero_grad(), no state"),
        (3, "no step(), no zero_grad(), no state"),
        (torch.optim.SGD, "no state"),
        (object(), "no step(), no zero_grad(), no state"),
        (WithoutState(), "no state"),
    ],
    ids=["None", "int", "class", "object", "without state"],
)
def test_what_takes_no_steps_is_refused_in_one_line(given: Any, lacks: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Optimizing(given, None, "the check's optimizer")
    assert str(caught.value).startswith("the check's optimizer returned ")
    assert f"which has {lacks}; return a torch.optim.Optimizer" in str(caught.value)


def test_another_s_tensors_and_numbers_are_its_state() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    own = Own(parameter)
    optimizing = Optimizing(own, None, "")
    optimizing.zero()
    optimizing.step()
    assert own.taken == ["zero", "step"]
    state = optimizing.state({"a.weight": parameter, "b.weight": parameter})
    inside = ["a.weight.pair.0", "a.weight.pair.1.inside"]
    assert list(state) == ["a.weight.sum", "a.weight.count", "a.weight.on", *inside]
    assert float(state["a.weight.count"]) == 3.0 and state["a.weight.count"].ndim == 0


def test_the_schedule_takes_its_step_after_the_optimizer_s() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    sgd = torch.optim.SGD([parameter], lr=1.0)
    optimizing = Optimizing(sgd, lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5), "")
    parameter.grad = torch.ones(2)
    for rate in (1.0, 0.5, 0.25):
        assert sgd.param_groups[0]["lr"] == rate
        optimizing.step()
    assert parameter.tolist() == [-1.75, -1.75]


def test_parameters_that_it_does_not_have_are_idle() -> None:
    named = {name: nn.Parameter(torch.zeros(2)) for name in ("a", "b", "c")}
    sgd = torch.optim.SGD([{"params": [named["a"]]}, {"params": [named["c"]]}], lr=1.0)
    assert Optimizing(sgd, None, "").idle(named) == {"b"}
    assert Optimizing(Own(named["a"]), None, "").idle(named) == frozenset()  # it has no groups
    copies = Optimizing(sgd, None, "", Mains(named, torch.float64))
    assert copies.idle(named) == frozenset()


def test_tied_and_frozen_parameters_are_there_once_and_not_at_all() -> None:
    tied, frozen = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1), requires_grad=False)
    assert list(once({"a": tied, "b": tied, "c": frozen})) == ["a"]


def test_a_state_belongs_to_the_parameter_that_it_is_named_by() -> None:
    names = ["up.weight", "up.weight_scale", "down.weight"]
    assert parameter_of("up.weight.exp_avg", dict.fromkeys(names)) == "up.weight"
    assert parameter_of("up.weight_scale.exp_avg", dict.fromkeys(names)) == "up.weight_scale"
    assert parameter_of("up.bias.exp_avg", dict.fromkeys(names)) is None


@pytest.mark.parametrize("schedule", [lambda o: None, lambda o: 3])
def test_a_schedule_that_takes_no_steps_is_refused_in_one_line(schedule: Any) -> None:
    sgd = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    with pytest.raises(InvalidArgument, match="its schedule returned"):
        Optimizing(sgd, schedule, "training's optimizer")


def test_a_state_that_is_no_mapping_is_refused_in_one_line() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    own = Own(parameter)
    own.state = {parameter: torch.zeros(2)}
    with pytest.raises(InvalidArgument, match="keep a mapping of names to tensors"):
        Optimizing(own, None, "the check's optimizer").state({"w": parameter})


def state_of(kept: dict[str, Any]) -> dict[str, torch.Tensor]:
    parameter = nn.Parameter(torch.zeros(2))
    own = Own(parameter)
    own.state = {parameter: kept}
    return Optimizing(own, None, "the check's optimizer").state({"w": parameter})


def test_what_numpy_holds_and_large_counts_are_compared_as_they_are() -> None:
    state = state_of({"array": np.ones(3), "scalar": np.float32(2.0), "count": 2**60 + 1, "z": 1j})
    assert state["w.array"].tolist() == [1.0] * 3 and float(state["w.scalar"]) == 2.0
    assert int(state["w.count"]) == 2**60 + 1 and state["w.count"].dtype == torch.int64
    assert state["w.z"].is_complex(), "which is refused where it is the reference's"


def test_two_of_one_name_are_refused_in_one_line() -> None:
    with pytest.raises(InvalidArgument, match=r"two tensors that are both called 'w\.a\.b'"):
        state_of({"a.b": 1, "a": {"b": 2}})
