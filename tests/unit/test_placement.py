"""Placements: every rank's indices, as torch cuts them; layouts: every name matched or refused.

Letters: R = degree, r = rank, n = size of the dim.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tpcheck import layout, placement
from tpcheck.case import Case
from tpcheck.errors import LayoutError
from tpcheck.layout import Layout
from tpcheck.placement import Blocks, Heads, Only, Partial, Replicate, Shard, take

degrees = st.integers(1, 9)


def held(split: placement.Sharded, size: int, degree: int) -> list[list[int]]:
    return [split.indices(size, degree, rank) for rank in range(degree)]


@given(size=st.integers(0, 40), degree=degrees)
def test_shards_partition_every_size_at_every_degree(size: int, degree: int) -> None:
    assert list(chain(*held(Shard(0), size, degree))) == list(range(size))


@given(size=st.integers(1, 40), degree=degrees)
def test_shard_cuts_where_torch_chunk_cuts(size: int, degree: int) -> None:
    chunks = [c.tolist() for c in torch.arange(size).chunk(degree)]
    chunks += [[]] * (degree - len(chunks))  # torch gives fewer chunks where some are empty
    assert held(Shard(0), size, degree) == chunks


@given(heads=st.integers(1, 12), width=st.integers(1, 4), degree=degrees)
def test_heads_cover_the_dim_equally_often_in_whole_heads(
    heads: int, width: int, degree: int
) -> None:
    size = heads * width
    if heads % degree and degree % heads:
        with pytest.raises(LayoutError, match=f"heads={heads}.*tp={degree}"):
            Heads(0, heads).indices(size, degree, 0)
        return
    parts = held(Heads(0, heads), size, degree)
    times = Counter(i for part in parts for i in part)
    assert times == dict.fromkeys(range(size), max(1, degree // heads))
    assert all(p == list(range(p[0], p[0] + len(p))) and p[0] % width == 0 for p in parts)


@pytest.mark.parametrize(("heads", "degree"), [(1, 4), (2, 4), (2, 8), (3, 6), (4, 4)])
def test_with_fewer_heads_than_ranks_a_head_lives_on_consecutive_ranks(
    heads: int, degree: int
) -> None:
    width = 2
    got = [part[0] // width for part in held(Heads(0, heads), heads * width, degree)]
    assert got == [rank // (degree // heads) for rank in range(degree)]
    if 1 < heads < degree:  # the map seen in the wild, which this test must tell apart
        assert got != [rank % heads for rank in range(degree)]


def test_blocks_split_a_fused_qkv_block_by_block() -> None:
    # q: 4 heads of 2, k and v: 2 heads of 2
    qkv = Blocks(0, ((8, Heads(0, 4)), (4, Heads(0, 2)), (4, Heads(0, 2))))
    assert qkv.indices(16, 2, 0) == [0, 1, 2, 3, 8, 9, 12, 13]
    assert qkv.indices(16, 2, 1) == [4, 5, 6, 7, 10, 11, 14, 15]
    assert qkv.indices(16, 4, 3) == [6, 7, 10, 11, 14, 15]  # K/V head 1 on ranks 2 and 3


def test_blocks_split_gate_and_up_and_a_plain_shard_would_not() -> None:
    gate_up = Blocks(0, ((6, Shard(0)), (6, Shard(0))))
    assert held(gate_up, 12, 2) == [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11]]
    assert held(gate_up, 12, 2) != held(Shard(0), 12, 2)


@given(widths=st.lists(st.integers(0, 9), min_size=1, max_size=4), degree=degrees)
def test_blocks_partition_all_of_their_blocks(widths: list[int], degree: int) -> None:
    split = Blocks(0, tuple((w, Shard(0)) for w in widths))
    parts = held(split, sum(widths), degree)
    assert sorted(chain(*parts)) == list(range(sum(widths)))
    assert all(part == sorted(part) for part in parts)


@given(
    rows=st.integers(1, 7),
    columns=st.integers(1, 7),
    dim=st.sampled_from([0, 1, -1, -2]),
    degree=st.integers(1, 5),
)
def test_what_the_ranks_take_puts_the_tensor_together_again(
    rows: int, columns: int, dim: int, degree: int
) -> None:
    full = torch.arange(rows * columns).reshape(rows, columns)
    case = Case(mesh={"tp": degree})
    parts = [take(full, Shard(dim), case=case, rank=r) for r in range(degree)]
    assert torch.equal(torch.cat(parts, dim), full)


def test_taking_scattered_indices_keeps_their_order() -> None:
    full = torch.arange(16.0).reshape(8, 2)
    case = Case(mesh={"dp": 2, "tp": 2})
    entry = Blocks(0, ((4, Shard(0)), (4, Shard(0))))
    assert take(full, entry, case=case, rank=3)[:, 0].tolist() == [4, 6, 12, 14]
    assert torch.equal(take(full, Partial(), case=case, rank=1), full)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.int8])
def test_indices_are_as_exact_in_a_dtype_that_does_not_hold_them(dtype: torch.dtype) -> None:
    full = torch.arange(6 * 1001).remainder(97).to(dtype)
    blocks = Blocks(0, ((2002, Shard(0)),) * 3)
    case = Case(mesh={"tp": 2}, dtype="float32")
    for rank in range(2):
        kept = torch.tensor(blocks.indices(len(full), 2, rank))
        assert torch.equal(take(full, blocks, case=case, rank=rank), full[kept])


def test_two_axes_split_one_after_the_other() -> None:
    full, case = torch.arange(8), Case(mesh={"dp": 2, "tp": 2})
    entry = {"dp": Shard(0), "tp": Shard(0)}
    parts = [take(full, entry, case=case, rank=r).tolist() for r in range(4)]
    assert parts == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Shard(0, even=True), ["size 5", "tp=2"]),
        (Heads(0, 5), ["heads=5", "tp=2"]),
        (Heads(0, 2), ["size 5", "heads=2"]),
        (Heads(0, 0), ["heads=0"]),
        (Blocks(0, ((2, Shard(0)), (2, Shard(0)))), ["[2, 2]", "5"]),
        (Shard(2), ["dim 2", "(5, 3)"]),
        (Shard(-3), ["dim -3", "(5, 3)"]),
        ({"tq": Shard(0)}, ["'tq'", "'tp'"]),
    ],
    ids=str,
)
def test_an_impossible_split_names_the_tensor_and_both_sides(
    entry: placement.Entry, words: list[str]
) -> None:
    with pytest.raises(LayoutError) as caught:
        placement.check("up.weight", torch.zeros(5, 3), entry, case=Case())
    assert all(word in str(caught.value) for word in ["up.weight", *words])


def test_a_possible_split_is_not_refused() -> None:
    for entry in (Shard(0), Shard(-1), Heads(0, 1), Replicate(), Partial(), {"dp": Replicate()}):
        placement.check("up.weight", torch.zeros(5, 3), entry, case=Case())


MESH = Case(mesh={"dp": 2, "tp": 4})


@pytest.mark.parametrize(
    ("entry", "groups"),
    [
        (Replicate(), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (Shard(0), []),
        (Shard(-1), []),
        (Partial(), []),
        (Heads(0, 2), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (Heads(0, 1), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (Blocks(0, ((4, Heads(0, 4)), (4, Heads(0, 1)))), []),
    ],
    ids=str,
)
def test_replicas_are_the_ranks_of_one_dp_group_that_hold_the_same(
    entry: placement.Entry, groups: list[list[int]]
) -> None:
    assert placement.replicas(entry, (8, 8), case=MESH) == groups


def test_only_a_split_over_more_than_one_rank_is_sharded() -> None:
    assert placement.is_sharded(Shard(0), MESH)
    assert not placement.is_sharded(Shard(0), Case(mesh={"tp": 1}))
    assert not placement.is_sharded(Replicate(), MESH)
    assert not placement.is_sharded({"dp": Replicate(), "tp": Partial()}, MESH)


def test_one_head_on_every_rank_is_not_sharded() -> None:
    assert len(placement.replicas(Heads(0, 1), (8,), case=Case())[0]) == 2
    assert not placement.is_sharded(Heads(0, 1), Case())


NAMES = ["layers.0.q.weight", "layers.1.q.weight", "layers.1.o.weight", "norm.bias"]


def test_patterns_expand_to_the_names_they_match() -> None:
    found = layout.resolve("params", {"layers.*.q.weight": Shard(0)}, NAMES)
    assert found == {
        "layers.0.q.weight": Shard(0),
        "layers.1.q.weight": Shard(0),
        "layers.1.o.weight": Replicate(),
        "norm.bias": Replicate(),
    }


def test_a_later_entry_wins_over_an_earlier_one() -> None:
    entries = {"layers.*": Shard(0), "layers.1.o.weight": Shard(1)}
    found = layout.matched("params", entries, NAMES)
    assert (found["layers.1.o.weight"], found["layers.0.q.weight"]) == (Shard(1), Shard(0))


@pytest.mark.parametrize("pattern", ["layers.0.p.weight", "layer.*.q.weight"])
def test_what_matches_nothing_is_an_error_that_lists_near_names(pattern: str) -> None:
    with pytest.raises(LayoutError) as caught:
        layout.resolve("params", {pattern: Shard(0)}, NAMES)
    assert all(word in str(caught.value) for word in ("params", pattern, "'layers.0.q.weight'"))


def test_a_layout_that_says_nothing_replicates_everything() -> None:
    assert layout.resolve("params", Layout().params, NAMES) == dict.fromkeys(NAMES, Replicate())


@pytest.mark.parametrize(
    ("shape", "entry", "expected"),
    [
        ((8, 4), Shard(0), Shard(0)),
        ((), Shard(0), Replicate()),
        ((8, 1), Shard(0), {"tp": Shard(0)}),
        ((1, 4), Shard(0), {"tp": Replicate()}),
        ((8, 1), Shard(-1), {"tp": Replicate()}),
        ((1, 4), {"dp": Replicate(), "tp": Heads(0, 2)}, {"dp": Replicate(), "tp": Replicate()}),
        ((1, 1), Only(0), {"tp": Only(0)}),
        ((), {"pp": Only(1), "tp": Shard(0)}, {"pp": Only(1)}),
        ((8,), Shard(0), None),
        ((4, 8), Shard(0), None),
        ((8, 4, 1), Shard(0), None),
    ],
)
def test_what_is_kept_of_a_tensor_follows_its_placement(
    shape: tuple[int, ...], entry: placement.Entry, expected: placement.Entry | None
) -> None:
    assert placement.follows(entry, shape, (8, 4)) == expected


STAGES = Case(mesh={"dp": 2, "pp": 2, "tp": 2})


def test_replicas_lie_along_every_axis_that_does_not_split_and_has_no_data_of_its_own() -> None:
    assert placement.replicas(Replicate(), (4,), case=STAGES) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert placement.replicas(Shard(0), (4,), case=STAGES) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert placement.replicas(Shard(0), (4,), case=STAGES, over=["dp", "pp", "tp"]) == [
        [0, 2, 4, 6],
        [1, 3, 5, 7],
    ]
    assert placement.replicas({"dp": Shard(0)}, (4,), case=STAGES, over=["tp"]) == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]


def test_only_the_stage_that_has_a_tensor_holds_it() -> None:
    entry = {"pp": Only(1), "tp": Shard(0)}
    holders = [rank for rank in range(8) if placement.holds(entry, case=STAGES, rank=rank)]
    assert holders == [2, 3, 6, 7]
    assert all(placement.holds(Shard(0), case=STAGES, rank=rank) for rank in range(8))
    assert take(torch.arange(4), entry, case=STAGES, rank=3).tolist() == [2, 3]
    assert placement.replicas({"pp": Only(1)}, (4,), case=STAGES) == [[2, 3], [6, 7]]
    with pytest.raises(LayoutError, match="Only"):
        placement.check("w", torch.arange(4), {"pp": Only(2)}, case=STAGES)


def test_sharded_along_one_axis_is_not_sharded_along_another() -> None:
    assert placement.is_sharded({"dp": Shard(0)}, STAGES)
    assert not placement.is_sharded({"dp": Shard(0)}, STAGES, axis="tp")
    assert placement.is_sharded({"dp": Shard(0), "tp": Shard(1)}, STAGES, axis="tp")
