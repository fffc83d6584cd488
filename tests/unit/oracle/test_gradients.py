"""The gradients that are expected: as backward has left them, whatever is done to them later."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.unit.oracle.test_expected import SEVERAL
from tpcheck import Norm, specs
from tpcheck.case import Case
from tpcheck.oracle.effort import FLOOR, SCREEN, Effort
from tpcheck.oracle.pose import pose
from tpcheck.vocabulary import Kind


def test_gradients_are_what_they_were_before_they_are_clipped() -> None:
    spec = replace(specs.mlp(), norm=Norm(most=(0.25,)))
    dims = {"batch": 2, "seq": 3, "hidden": 4, "intermediate": 6, "activation": "gelu"}
    case = Case(dims | {"norm": "none", "residual": False, "bias": True}, dtype="float64")
    (problem,) = pose(spec, case).problems
    grads = [t.value for t in problem.targets if t.kind is Kind.PARAM_GRAD]
    (norm,) = (t.value for t in problem.targets if t.kind is Kind.GRAD_NORM)
    found = torch.cat([grad.flatten() for grad in grads]).norm()
    torch.testing.assert_close(found, norm.squeeze())
    assert problem.most == [0.25 * float(norm)]


class Flat(torch.nn.Linear):
    """Keeps its gradients in one buffer, as DDP and Megatron do."""

    def __init__(self) -> None:
        super().__init__(4, 6)
        self.kept: dict[tuple[torch.Size, torch.dtype], Tensor] = {}
        for parameter in self.parameters():
            parameter.register_post_accumulate_grad_hook(self.keep)

    def keep(self, parameter: Tensor) -> None:
        own = self.kept.setdefault((parameter.shape, parameter.dtype), torch.empty_like(parameter))
        assert parameter.grad is not None
        parameter.grad = own.copy_(parameter.grad)


@pytest.mark.parametrize("effort", [FLOOR, SCREEN])
def test_what_a_reference_writes_over_its_gradients_is_not_expected(effort: Effort) -> None:
    """In float64 it runs more than once, on other numbers."""
    plain = replace(SEVERAL, forward=None)
    flat, case = replace(plain, reference=lambda case: Flat()), Case(dtype="float64")
    right, found = (pose(spec, case, effort).problems[0].targets for spec in (plain, flat))
    assert len(right) == len(found)
    for one, other in zip(right, found, strict=True):
        assert torch.equal(one.value, other.value), other.name
