"""A reference that computes in a dtype of fewer digits, whatever the case's is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.unit.oracle.test_expected import CASE, DIMS
from tpcheck import Case, Layout, Spec
from tpcheck.evidence import Values
from tpcheck.oracle.effort import CONFIRM, SCREEN
from tpcheck.oracle.pose import Posed, pose
from tpcheck.protocol.messages import RankReport
from tpcheck.runner.second_look import doubtful
from tpcheck.verdict import Mismatch


class Inside(nn.Module):
    """Two layers, the second in `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = F.gelu(self.up(x)).to(self.dtype)
        y = F.linear(h, self.down.weight.to(self.dtype), self.down.bias.to(self.dtype))
        return F.gelu(y).to(x.dtype)


def spec_of(module: type[Inside], inside: torch.dtype) -> Spec:
    return Spec(
        name="inside",
        reference=lambda case: module(inside),
        inputs=lambda case, draw: {"x": draw("x", 5, 6)},
        layout=lambda case: Layout(),
        cases=[CASE],
    )


def posed(inside: torch.dtype, dtype: str, effort: Any) -> Posed:
    spec = spec_of(Inside, inside)
    return pose(spec, Case(dims=DIMS, mesh=CASE.mesh, dtype=dtype, seed=3), effort)


def sizes(of: Posed) -> dict[str, float]:
    """Name → bound of its largest element, of its largest number."""
    targets = of.problems[0].targets
    limit = {t.name: t.spread.elementwise_limit(t.value.numel()) for t in targets}
    return {
        t.name: limit[t.name] * float(t.spread.sigma.max() / t.value.abs().max()) for t in targets
    }


@pytest.mark.parametrize("effort", [SCREEN, CONFIRM], ids=["few", "many"])
@pytest.mark.parametrize("inside", [torch.bfloat16, torch.float16, torch.float32])
def test_its_bounds_in_float64_are_about_those_of_what_it_computes_in(
    inside: torch.dtype, effort: Any
) -> None:
    """Errors that are enlarged are as large as the numbers there, and what they lead to larger."""
    wide = sizes(posed(inside, "float64", effort))
    # of float32 inside of float32 all rounds so
    near = sizes(posed(inside, "float32", effort))
    for name, bound in near.items():
        assert wide[name] < 6 * bound, name
        if inside != torch.float32:
            assert bound < 6 * wide[name], name


@pytest.mark.parametrize(
    ("inside", "coarse"), [(torch.bfloat16, True), (torch.float32, True), (torch.float64, False)]
)
def test_what_moves_by_steps_has_enlarged_runs_and_closer_ones_decide(
    inside: torch.dtype, coarse: bool
) -> None:
    """Few runs may not move an element at all, of which nothing is known then."""
    few = posed(inside, "float64", SCREEN)
    assert few.coarse is coarse
    value = few.problems[0].targets[0]
    off = Mismatch(value.name, value.kind, 0, error=1.0, bound=0.0, detail=Values(1, 30))
    suspects = {(value.kind, value.name): value.entry}
    report = RankReport(0, mismatches=[off], suspects=suspects)
    assert doubtful(few, [report]) is coarse
    runs = few.closely.__self__.studied[0][1]  # type: ignore[union-attr]
    assert len(runs.run(CONFIRM)[1]) == CONFIRM.strained


def test_what_is_computed_before_it_is_bounded_by_its_own_digits() -> None:
    class Before(Inside):
        def forward(self, x: Tensor) -> Any:
            h = self.up(x)
            return {"before": h, "after": self.down(h.to(self.dtype).to(x.dtype))}

    spec = spec_of(Before, torch.bfloat16)
    found = sizes(pose(spec, Case(dims=DIMS, mesh=CASE.mesh, seed=3), SCREEN))
    assert 1e-16 < found["before"] < 1e-12 and found["after"] > 1e-4
