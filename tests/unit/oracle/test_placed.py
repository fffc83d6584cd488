"""Over which axes of the mesh ranks hold terms of a tensor's sum."""

from __future__ import annotations

from typing import Any

import pytest

from tpcheck.case import Case
from tpcheck.oracle.placed import terms_over
from tpcheck.placement import Partial, Replicate, Shard


@pytest.mark.parametrize(
    ("entry", "axes"),
    [
        (Partial(), ["tp"]),
        ({"dp": Partial(), "tp": Shard(0)}, ["dp"]),
        ({"cp": Partial(), "tp": Partial()}, ["tp"]),
        (Replicate(), []),
    ],
)
def test_terms_lie_over_axes_of_more_than_one_rank(entry: Any, axes: list[str]) -> None:
    case = Case(mesh={"dp": 2, "cp": 1, "tp": 2})
    assert terms_over(entry, case) == axes
    assert terms_over(entry, Case(mesh={"dp": 1, "tp": 1})) == []
