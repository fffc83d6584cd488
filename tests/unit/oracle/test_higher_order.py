"""References with operators of higher order, as `torch.cond`."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import map as map_rows
from torch.nn import functional as F

from tpcheck import Layout, Spec
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.effort import CONFIRM, FLOOR, SCREEN
from tpcheck.oracle.pose import pose

#: Half of all that is here.
LONGEST = {("bfloat16", 4, True), ("float32", 4, True)}


def normal(x: Tensor) -> Tensor:
    """By operators that are made of others."""
    h = F.layer_norm(torch.tanh(x), x.shape[-1:])
    return F.linear(h, h.mT @ h)


@pytest.mark.filterwarnings("ignore")  # torch's own
@pytest.mark.parametrize(
    ("dtype", "width", "known"),
    [
        pytest.param(*one, marks=pytest.mark.sweep if one in LONGEST else ())
        for one in product(("float64", "float32", "bfloat16"), (4, 512), (True, False))
    ],
)
def test_what_operators_of_higher_order_round_is_that_of_their_parts(
    dtype: str, width: int, known: bool
) -> None:
    """Or no noisy run sees what they round."""

    def forward(module: Any, inputs: Any) -> Tensor:
        (x,) = inputs.values()
        y = module(x)
        if not known:
            rows: Tensor = map_rows(torch.tanh, y)
            return rows
        given: Tensor = torch.cond(y.sum() > -1e9, normal, lambda t: t * 3, (y,))
        return given

    def plain(module: Any, inputs: Any) -> Tensor:
        (x,) = inputs.values()
        return normal(module(x))

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
    if not known:
        with pytest.raises(InvalidArgument, match="how far map_impl may round"):
            pose(spec, case, SCREEN)
        return
    effort = CONFIRM if width < 9 else SCREEN  # few numbers take more runs
    found = pose(spec, case, effort).problems[0].targets
    right = pose(replace(spec, forward=plain), case, effort).problems[0].targets
    for one, other in zip(found, right, strict=True):
        assert torch.equal(one.value, other.value), one.name
        sizes = [float(target.spread.sigma.norm()) for target in (one, other)]
        assert 0.5 < sizes[0] / sizes[1] < 2.0, one.name
