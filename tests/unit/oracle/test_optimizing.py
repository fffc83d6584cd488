"""The optimizer of the reference's walk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tpcheck import Case, Training, specs
from tpcheck.oracle.pose import Posed, pose

CASE = Case(
    mesh={"tp": 2},
    dims={"batch": 1, "seq": 3, "in_features": 40, "out_features": 36, "bias": True},
)


def posed(kind: Any, dtype: str, *, fused: bool) -> Posed:
    training = Training(lambda named: kind(named.values(), lr=0.01, fused=fused), steps=2)
    spec = replace(specs.row_linear(), training=training)
    return pose(spec, replace(CASE, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "kind", [torch.optim.AdamW, torch.optim.Adam, torch.optim.Adagrad, torch.optim.SGD]
)
def test_the_bounds_of_a_fused_step_are_those_of_its_parts(kind: Any, dtype: str) -> None:
    fused, parts = (posed(kind, dtype, fused=own) for own in (True, False))
    for one, other in zip(fused.problems[0].targets, parts.problems[0].targets, strict=True):
        assert (one.kind, one.name) == (other.kind, other.name)
        assert torch.allclose(one.value, other.value, rtol=1e-9, atol=1e-12)
        if one.kind in ("param", "optimizer_state") and one.value.any():
            sizes = [float(t.spread.sigma.norm()) for t in (one, other)]
            assert sizes[1] / 2 <= sizes[0] <= 2 * sizes[1], one.name  # counts have none
