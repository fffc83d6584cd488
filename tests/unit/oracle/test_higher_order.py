"""References with operators of higher order, as `torch.cond`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpcheck import Layout, Spec
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.effort import FLOOR, SCREEN
from tpcheck.oracle.pose import pose


@pytest.mark.filterwarnings("ignore")  # torch's own
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("width", [4, 512])
def test_operators_of_higher_order_are_no_more_than_looked_at(dtype: str, width: int) -> None:
    """No noisy run sees what they round."""

    def forward(module: Any, inputs: Any) -> Tensor:
        (x,) = inputs.values()
        y = module(x)
        given: Tensor = torch.cond(y.sum() > -1e9, lambda t: t * 2, lambda t: t * 3, (y,))
        return given

    spec = Spec(
        name="chooses",
        cases=[Case()],
        reference=lambda case: nn.Linear(width, width),
        inputs=lambda case, draw: {"x": draw("x", 2, width)},
        layout=lambda case: Layout(),
        forward=forward,
    )
    case = Case(dtype=dtype, mesh={"tp": 2})
    assert pose(spec, case, None).effort is FLOOR
    with pytest.raises(InvalidArgument, match="may round is not known; give the spec a rounding="):
        pose(spec, case, SCREEN)
