"""Layouts in torch's words: what each of its placements is kept as, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import tensor as torchs
from torch.distributed.tensor.placement_types import _StridedShard

from tpcheck import placement
from tpcheck.errors import LayoutError
from tpcheck.layout import Layout
from tpcheck.placement import Blocks, Heads, Partial, Replicate, Shard


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (torchs.Replicate(), Replicate()),
        (torchs.Shard(1), Shard(1)),
        (torchs.Shard(-1), Shard(-1)),
        (torchs.Partial(), Partial()),
        ((torchs.Shard(0),), Shard(0)),  # as `DTensor.placements` of a mesh of one axis
        ({"dp": torchs.Replicate(), "tp": Shard(1)}, {"dp": Replicate(), "tp": Shard(1)}),
        (_StridedShard(0, split_factor=2), Blocks(0, 2)),
        # FSDP after TP: its axis is applied last
        (
            {"dp": _StridedShard(0, split_factor=2), "tp": torchs.Shard(0)},
            {"tp": Shard(0), "dp": Shard(0)},
        ),
        (
            {"dp": _StridedShard(1, split_factor=2), "tp": torchs.Shard(0)},
            {"dp": Blocks(1, 2), "tp": Shard(0)},
        ),
    ],
    ids=str,
)
def test_a_layout_keeps_torchs_placements_in_its_own_words(
    given: Any, kept: placement.Entry
) -> None:
    groups = {name: {"w": given} for name in ("params", "inputs", "outputs", "grads", "states")}
    made = Layout(**groups)
    for group in groups:
        own = getattr(made, group)["w"]
        assert own == kept and list(placement.by_axis(own)) == list(placement.by_axis(kept))


def test_a_fused_weight_of_torchs_shards_is_blocks_of_ours() -> None:
    fused: Any = Blocks(0, ((4, torchs.Shard(0)), (2, Heads(0, 2))))
    assert fused == Blocks(0, ((4, Shard(0)), (2, Heads(0, 2))))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (torchs.Partial("avg"), "Partial.'avg'. is not a placement that tpcheck compares"),
        ({"tp": torchs.Partial("max")}, "Partial.'max'.*give Partial.., whose terms add up"),
        ((torchs.Replicate(), torchs.Shard(0)), "is .Replicate.*or axis → placement"),
        ({"dp": _StridedShard(-2, split_factor=2), "tp": torchs.Shard(0)}, "dims .* from one end"),
    ],
    ids=str,
)
def test_what_of_torchs_means_something_else_is_one_line(given: Any, words: str) -> None:
    with pytest.raises(LayoutError, match=rf"^Layout.grads=.'w': ….. ?.*{words}") as caught:
        Layout(grads={"w": given})
    assert len(str(caught.value).splitlines()) == 1


@given(width=st.integers(0, 5), count=st.integers(1, 4), degree=st.integers(1, 9))
def test_blocks_of_one_size_are_those_of_a_strided_shard(
    width: int, count: int, degree: int
) -> None:
    size, ranks = width * count, range(degree)
    listed = Blocks(0, ((width, Shard(0)),) * count)
    for rank in ranks:
        assert Blocks(0, count).indices(size, degree, rank) == listed.indices(size, degree, rank)
    if count > 1:
        with pytest.raises(LayoutError, match=f"{count} blocks of one size .* {size + 1}"):
            Blocks(0, count).indices(size + 1, degree, 0)


@pytest.mark.parametrize(
    ("one", "other", "degree", "same"),
    [
        (Shard(-1), Shard(1), 2, True),
        (Shard(0), Shard(1), 2, False),
        (Shard(0), Heads(0, 4), 2, True),
        (Shard(0), Heads(0, 4), 8, False),
        (Blocks(0, 2), Blocks(0, ((4, Shard(0)), (4, Shard(0)))), 2, True),
        (Blocks(0, 2), Shard(0), 2, False),
        (Replicate(), Shard(0), 2, False),
        (Partial(), Partial(), 2, True),
    ],
)
def test_placements_are_the_same_where_each_rank_holds_the_same(
    one: placement.Placement, other: placement.Placement, degree: int, same: bool
) -> None:
    assert placement.is_same_part(one, other, (8, 8), degree) is same
