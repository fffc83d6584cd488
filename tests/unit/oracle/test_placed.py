"""Over which axes of the mesh ranks hold terms of a tensor's sum; what is placed along dp."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tpcheck.case import Case
from tpcheck.errors import LayoutError
from tpcheck.layout import Layout
from tpcheck.oracle.placed import placed_ends, terms_of, terms_over
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


@pytest.mark.parametrize(("along", "how"), [(Shard(0), "sharded"), (Partial(), "a term of a sum")])
def test_data_of_a_dp_coordinate_are_whole_along_dp(along: Any, how: str) -> None:
    given, case = {"x": torch.ones(4, 4)}, Case(mesh={"dp": 2, "tp": 2})
    own = {"dp": along, "tp": Shard(1)}
    for layout in (Layout(inputs={"x": own}), Layout(outputs={"output": own})):
        with pytest.raises(LayoutError, match=f"is {how} along dp, but .*; leave dp out"):
            placed_ends(layout, case, given, ["output"])
    layout = Layout(grads={"x": own})
    with pytest.raises(LayoutError, match=f"grads: 'x' is {how} along dp"):
        terms_of(layout, case, ["w"], ["x"], shared=True)


def test_terms_over_dp_are_of_gradients_that_are_combined_over_it() -> None:
    layout, case = Layout(grads={"w": {"dp": Partial()}}), Case(mesh={"dp": 2, "tp": 2})
    assert terms_of(layout, case, ["w"], [], shared=True) == {"w"}
    with pytest.raises(LayoutError, match=r"'w' is Partial\(\) along dp, but .* dp_gr"):
        terms_of(layout, case, ["w"], [], shared=False)
