"""What a view keeps alive: nothing of a flat buffer that other parameters are in, all of a whole
tensor of which it is a part."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from tpcheck.ranks import views
from tpcheck.ranks.views import ALIGNMENT

SIZE = 4 * ALIGNMENT  # elements of a whole weight, of four bytes


def kept_by(tensor: Tensor, others: Iterable[Tensor]) -> int:
    return views.kept_by(tensor, {str(i): one for i, one in enumerate(others)})


def flat(*sizes: int) -> list[Tensor]:
    return list(torch.empty(sum(sizes)).split(list(sizes)))


def test_alone_it_keeps_its_storage() -> None:
    whole = torch.empty(6, 4)
    assert kept_by(whole[:3], [whole[:3]]) == whole.nbytes
    assert kept_by(whole[:, :2], []) == whole.nbytes
    assert kept_by(whole[:3].clone(), [whole]) == whole.nbytes // 2


def test_in_a_flat_buffer_it_keeps_its_own() -> None:
    own = flat(8, 64, 8, 0, 32)
    assert [kept_by(one, own) for one in own if len(one)] == [one.nbytes for one in own if len(one)]


@pytest.mark.parametrize("padding", [1, ALIGNMENT // 8])
def test_alignment_between_them_is_no_ones(padding: int) -> None:
    own = flat(*[SIZE // 2, padding] * 3)[::2]
    assert {kept_by(one, own) for one in own} == {2 * SIZE}


def test_the_twin_whole_tensors_in_one_buffer_are_seen() -> None:
    """Of three fused ones, each rank's part is a view; of two, one is whole."""
    fused = torch.empty(3, SIZE)
    own = [one[: SIZE // 2] for one in fused]
    assert all(kept_by(one, own) >= 4 * SIZE for one in own)
    by_columns = [one.view(-1, 8)[:, :4] for one in fused]
    assert all(kept_by(one, by_columns) >= 4 * SIZE for one in by_columns)
    shard, _, whole = flat(SIZE // 2, SIZE // 2, SIZE)
    assert kept_by(shard, [shard, whole]) == 4 * SIZE
    assert kept_by(whole, [shard, whole]) >= 4 * SIZE


def test_columns_between_others_keep_their_own() -> None:
    q, k = torch.empty(SIZE, 2).unbind(1)
    assert kept_by(q, [q, k]) == q.nbytes


def test_what_is_tied_is_one() -> None:
    whole = torch.empty(6, 4)
    part, again = whole[:3], whole[:3]
    assert kept_by(part, [part, again]) == whole.nbytes


def test_what_has_no_storage_to_look_at_is_left_out() -> None:
    whole = torch.empty(6, 4)
    assert kept_by(whole[:3], [torch.eye(2).to_sparse(), whole.to("meta")]) == whole.nbytes
