"""What a view keeps alive: a whole tensor where the other parts of it would lie around it, and
nothing of a flat buffer whose rest is others', or padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
import torch
from torch import Tensor, nn

from tpcheck import Case, Shard
from tpcheck.ranks.views import LARGEST_UNIT, UNIT, has_storage, in_memory, is_around, places

ROWS, COLUMNS = 6, 10
FULL = torch.randn(ROWS, COLUMNS)


def kept(
    part: Tensor,
    rank: int,
    others: Iterable[Tensor] = (),
    *,
    full: Tensor = FULL,
    dim: int = 0,
    degree: int = 2,
) -> bool | None:
    case = Case({}, dtype="float32", mesh={"tp": degree})
    at = places(Shard(dim), full.shape, case=case, rank=rank)
    return is_around(part, full, at, others)


def flat(*sizes: int) -> Sequence[Tensor]:
    """Parts of one buffer."""
    return torch.zeros(sum(sizes)).split(list(sizes))


@pytest.mark.parametrize("dim", [0, 1])
def test_a_part_of_the_whole_has_its_numbers_around_it(dim: int) -> None:
    whole = FULL.clone()
    for rank, part in enumerate(whole.chunk(2, dim)):
        assert kept(part, rank, dim=dim)
        assert kept(part, rank, [part, part.view(part.shape)], dim=dim)  # tied ones
        assert not kept(part.clone(), rank, dim=dim)
    for rank, part in enumerate(whole.T.contiguous().T.chunk(2, dim)):  # as it lies transposed
        assert kept(part, rank, dim=dim)


def test_before_it_is_loaded_there_is_room_for_it() -> None:
    """In a storage that is larger than the whole one: of another as well."""
    other = torch.zeros(2 * ROWS, COLUMNS)
    for rank, part in enumerate(other[:ROWS].chunk(2)):
        assert kept(part, rank) is None
    assert kept(other[:3], 1) is False  # where rank 0's part would be, there is nothing
    assert kept(other[3:6], 1, [other[:2]]) is False  # nor is it free
    assert kept(other[3:6], 1, [other[:4]]) is None  # the whole one itself, in an attribute
    assert kept(other[3:6].double(), 1) is False


def test_the_storage_of_exactly_the_whole_one_is_it() -> None:
    """Where each rank has the first part: unless an allocator rounds its storages up."""
    assert kept(torch.zeros(ROWS, COLUMNS)[:3], 1)
    assert kept(torch.zeros(ROWS, COLUMNS)[:3], 1, [torch.zeros(ROWS, COLUMNS)[3:]])
    first, second = torch.zeros(ROWS, COLUMNS).chunk(2)
    assert kept(first, 1, [second]) is False
    assert kept(torch.zeros(9, COLUMNS)[:3], 1, [torch.zeros(9, COLUMNS)[6:]]) is False
    more = torch.zeros(9, COLUMNS)
    assert kept(more[:3], 1, [more[6:]]) is None  # as large, in a buffer
    full = torch.randn(8, 8)
    assert kept(torch.zeros(8, 8)[:4], 1, full=full) is False
    assert kept(torch.zeros(8, 8)[4:], 0, full=full)
    large = torch.randn(4 * LARGEST_UNIT)
    assert kept(torch.zeros(4 * LARGEST_UNIT)[: 2 * LARGEST_UNIT], 1, full=large)


def test_a_flat_buffer_has_no_room() -> None:
    one, two, three = flat(30, 40, 60)
    own = [one.view(3, 10), two, three]
    assert [kept(own[0], rank, own) for rank in (0, 1)] == [False, False]
    assert kept(own[0], 0, [three]) is None  # what nobody knows of lies between them
    assert kept(own[0], 1, [three]) is False
    assert kept(own[0], 0, [two[30:]]) is None and kept(own[0], 0, [two[20:]]) is False


@pytest.mark.parametrize("unit", [8, UNIT])
def test_what_is_padding_is_not_room(unit: int) -> None:
    """Each begins at a multiple of the unit: before and behind it is as much as the whole one."""
    full = torch.randn(2)
    buffer = torch.zeros(4 * unit)
    others = [buffer[:1], buffer[2 * unit : 2 * unit + 1]]
    part = buffer[unit : unit + 1]
    assert [kept(part, rank, others, full=full) for rank in (0, 1)] == [False, False]
    shifted = buffer[unit + 3 : unit + 4]
    assert [kept(shifted, rank, others, full=full) for rank in (0, 1)] == [False, None]


def test_columns_between_others_are_alone() -> None:
    q, k = torch.zeros(ROWS, 2 * COLUMNS).unflatten(1, (2, COLUMNS)).unbind(1)
    half = q.chunk(2)[0]
    assert kept(half, 0, [k.chunk(2)[0]]) is None  # fused ones, whole, of which it has the rows
    assert kept(half, 0, [k]) is None
    assert kept(half, 0, [k, q.chunk(2)[1]]) is False
    assert not kept(torch.zeros(ROWS, 16)[:, :5], 1, dim=1)  # rows that are aligned


def test_what_has_no_storage_to_look_at_is_left_out() -> None:
    part = FULL.clone()[:3]
    assert kept(part, 0, [torch.eye(2).to_sparse(), FULL.to("meta"), torch.empty(0)])
    assert not has_storage(torch.eye(2).to_sparse()) and not has_storage(FULL.to("meta"))


class Own(nn.Parameter):
    """One that knows more, as some frameworks have."""


def test_subclasses_have_memory_and_what_wraps_others_has_not() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    assert has_storage(Own(torch.zeros(2)))
    with FakeTensorMode():
        assert not has_storage(torch.zeros(2))
    one, two = flat(30, 30)
    assert not kept(Own(one.view(3, 10)), 0, [Own(two)])


def test_gradients_and_attributes_are_the_ranks_too() -> None:
    module = nn.Linear(2, 2)
    module.weight.main_grad = torch.zeros(2, 2)  # type: ignore[attr-defined]
    module.bias.grad = torch.zeros(2)
    module.cache = {"x": torch.zeros(3)}  # type: ignore[assignment]
    found = in_memory(module)
    assert sorted(t.numel() for t in found) == [2, 2, 3, 4, 4]
    assert {t.data_ptr() for t in found} >= {module.bias.grad.data_ptr()}
