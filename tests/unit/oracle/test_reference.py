"""What a spec's own functions give, as they are asked for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests import candidates
from tpcheck import InvalidArgument, Layout, Shard, Training, specs
from tpcheck.oracle.pose import pose

MLP = {"batch": 1, "seq": 2, "hidden": 4, "intermediate": 8, "activation": "gelu"}
MLP |= {"norm": "none", "residual": False, "bias": True}


class Wrapper(nn.Module):
    """As activation checkpointing puts around a module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = module

    def forward(self, *inputs: Tensor) -> Any:
        return self._checkpoint_wrapped_module(*inputs)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"reference": lambda case: None}, r"reference\(case\) returned None; return a module, or"),
        ({"inputs": lambda case, draw: [draw("x", 2)]}, "returned a list; return a dict of name →"),
        (
            {"layout": lambda case: Layout(), "init": lambda *given: torch.zeros(1)},
            r"init\('weight', …\) returned shape \[1\]; return a tensor of shape \[\d+, \d+\]",
        ),
        (
            {"layout": lambda case: Layout(), "init": lambda *given: 0.0},
            r"init\('weight', …\) returned a float; return a tensor of shape",
        ),
        ({"requires": lambda case: True}, r"requires\(case\) returned True; return None where"),
    ],
)
def test_what_a_spec_s_own_functions_are_to_return_is_said(
    change: dict[str, Any], what: str
) -> None:
    """A forgotten `return`, of a layout that names parameters: not that these are not there."""
    layout = Layout(params={"*": Shard(0)})
    with pytest.raises(InvalidArgument, match=what):
        given = {"layout": lambda case: layout, **change}
        pose(replace(specs.row_linear(), **given), candidates.CASE)


@pytest.mark.parametrize("training", [None, Training(lambda n: torch.optim.SGD(n.values(), 0.1))])
def test_what_a_wrapper_puts_around_a_reference_is_in_no_name(training: Training | None) -> None:
    """As around a candidate's modules."""
    plain = replace(specs.mlp(), training=training)
    assert plain.reference is not None
    case = replace(candidates.CASE, dims=MLP)
    inside = replace(plain, reference=lambda case: Wrapper(specs.mlp().reference(case)))  # type: ignore[misc]
    found, right = pose(inside, case), pose(plain, case)
    assert found.params == right.params
    for one, other in zip(found.problems[0].targets, right.problems[0].targets, strict=True):
        assert (one.kind, one.name) == (other.kind, other.name)
        assert torch.equal(one.value, other.value)


@pytest.mark.parametrize("what", ["reference", "rounding"])
def test_each_call_of_a_reference_makes_a_new_module(what: str) -> None:
    """One that it casts would cast the other."""
    plain, made = specs.row_linear(), nn.Linear(4, 3)
    spec = replace(plain, **{what: lambda case: made})
    dims = {"batch": 1, "seq": 2, "in_features": 4, "out_features": 3, "bias": True}
    case = replace(candidates.CASE, dims=dims, dtype="bfloat16")
    with pytest.raises(InvalidArgument, match=rf"{what}\(case\) returned the parameter 'weight'"):
        pose(spec, case)
    pose(spec, replace(case, dtype="float64"))
