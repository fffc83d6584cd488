"""What a rank holds and sends is what the formulas say, and what the page says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fixtures.parallel.block import Block
from tests import ROOT
from tests.catalogue import accounting
from tests.catalogue.accounting import DEGREES, DIMS, Row, check_of, measured, rows, table
from tpcheck import Case
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner

PAGE = (ROOT / "docs/accounting.md").read_text()


@pytest.fixture(scope="module")
def eight() -> Any:
    with Engine("gloo", max(DEGREES)) as engine:
        yield engine


@pytest.fixture(scope="module")
def found(eight: Engine) -> list[Row]:
    return list(measured(eight))


@pytest.mark.sweep
def test_every_figure_is_as_by_formula(found: list[Row]) -> None:
    assert [row for row in found if not row.same] == []
    assert len(found) == 2 * 6 * len(DEGREES) and all(row.measured > 0 for row in found)


@pytest.mark.sweep
def test_the_page_has_the_table(found: list[Row]) -> None:
    assert "\n".join(table(found)) in PAGE


class Wider(Block):
    """Keeps gradients that are twice as wide as the parameters, and one more activation."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.parameters():
            parameter.register_post_accumulate_grad_hook(widen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = super().forward(x)
        return y * torch.ones_like(y)


def widen(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    held = parameter.grad.new_zeros(2 * parameter.numel())
    held[: parameter.numel()] = parameter.grad.flatten()
    parameter.grad = held[: parameter.numel()].view_as(parameter)


@pytest.mark.sweep
def test_the_twin_more_than_by_formula_is_seen(gloo: Engine) -> None:
    runner = Runner(check_of(False, Wider), gloo)
    result = runner.run(Case(DIMS, dtype="bfloat16", mesh={"tp": 2}))
    wrong = {row.what for row in rows(2, False, result) if not row.same}
    assert wrong == {"gradients", "saved for backward"}
    assert accounting.LOW * 2 * accounting.held(2) == result.bytes["gradients"][0]
