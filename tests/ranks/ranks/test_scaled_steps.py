"""Steps of a candidate's own optimizer under a loss that is scaled."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fixtures.parallel.scaling import ScaledMainParameters
from properties.training import SCALING, adamw, mlp_sp_main_scaled
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind

CASE = Case(
    dims={"batch": 2, "seq": 4, "hidden": 16, "intermediate": 32, "activation": "gelu"}
    | {"norm": "layer", "residual": True, "bias": True},
    mesh={"tp": 2},
)


class MainGradients(ScaledMainParameters):
    """As Megatron does it: gradients are copied to those of the main copies, and these are divided;
    ``grad`` stays as backward has left it."""

    divides = True

    @torch.no_grad()
    def unscale(self) -> None:
        self.mains: dict[nn.Parameter, Tensor] = {}
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                grad = parameter.grad.to(torch.promote_types(parameter.dtype, torch.float32))
                self.mains[parameter] = grad / (self.scale if self.divides else 1.0)
        finite = all(bool(grad.isfinite().all()) for grad in self.mains.values())
        self.finite = self.everywhere(finite)

    def take(self, copy: nn.Parameter, parameter: nn.Parameter) -> None:
        copy.grad = self.mains.get(parameter)


class Forgets(MainGradients):
    """Nothing is divided: Adam's step hardly shows it."""

    divides = False


def run(engine: Engine, optimizer: type[ScaledMainParameters], dtype: str) -> CaseResult:
    own = replace(
        mlp_sp_main_scaled,
        optimizer=lambda module, mesh: optimizer(module, mesh, adamw, SCALING),
    )
    return Runner(own, engine).run(replace(CASE, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_gradients_may_be_divided_in_copies(gloo: Engine, dtype: str) -> None:
    found = run(gloo, MainGradients, dtype)
    assert found.verdict is Verdict.PASS, found.mismatches


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_gradients_that_nobody_divides_are_told(gloo: Engine, dtype: str) -> None:
    found = run(gloo, Forgets, dtype)
    assert found.verdict is Verdict.FAIL
    assert Kind.OPTIMIZER_STATE in {mismatch.kind for mismatch in found.mismatches}
