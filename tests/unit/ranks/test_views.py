"""What a view keeps alive: a whole tensor where the other parts of it lie around it, or there is
room for them and for nothing else; nothing of a buffer that has other things of the rank's."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tpcheck import Case, Shard
from tpcheck.protocol.messages import RankReport
from tpcheck.ranks.memory import has_storage, in_memory
from tpcheck.ranks.parts import Part
from tpcheck.ranks.views import Views, kept_whole
from tpcheck.tensors.places import places

ROWS, COLUMNS = 6, 10
FULL = torch.randn(ROWS, COLUMNS)


def part(here: Tensor, rank: int, full: Tensor = FULL, dim: int = 0, degree: int = 2) -> Part:
    case = Case({}, dtype="float32", mesh={"tp": degree})
    return Part(here, full, places(Shard(dim), full.shape, case=case, rank=rank))


def kept(
    here: Tensor,
    rank: int,
    others: Iterable[Tensor] = (),
    *,
    full: Tensor = FULL,
    dim: int = 0,
    degree: int = 2,
) -> bool | None:
    return told({"w": part(here, rank, full, dim, degree)}, [here, *others])["w"]


def told(
    parts: Mapping[str, Part], others: Sequence[Tensor], due: Sequence[Tensor] = ()
) -> dict[str, bool | None]:
    """Whether each is kept; None where that depends on other ranks.

    Args:
        due: what the rank is to have, beside its parts.
    """
    own = {name: each.here for name, each in parts.items()}
    more = {f"due {i}": tensor for i, tensor in enumerate(due)}
    found, room = kept_whole(parts, own | more, others)
    return {name: None if name in room else name in found for name in parts}


@pytest.mark.parametrize("dim", [0, 1])
def test_a_part_of_the_whole_has_its_numbers_around_it(dim: int) -> None:
    larger = torch.cat([torch.zeros(3, COLUMNS), FULL, torch.zeros(5, COLUMNS)])
    for whole in (FULL.clone(), FULL.T.contiguous().T, larger[3 : 3 + ROWS]):
        for rank, here in enumerate(whole.chunk(2, dim)):
            assert kept(here, rank, dim=dim) is True
            assert kept(here, rank, [here.view_as(here), whole], dim=dim) is True
            assert kept(here, rank, whole.chunk(2, dim), dim=dim) is True  # named or not
            assert not kept(here.clone(), rank, dim=dim)
    equal = torch.ones(ROWS, COLUMNS)
    assert kept(equal[:3], 0, [equal[3:]], full=equal) is False  # by chance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("degree", [2, 3])
def test_the_others_numbers_may_lie_anywhere_in_its_storage(
    degree: int, dtype: torch.dtype
) -> None:
    """Columns packed rank by rank, beside what the rank has and what nobody names."""
    torch.manual_seed(degree)
    full = torch.randn(4, 6).to(dtype)
    packed = torch.cat([part.flatten() for part in full.chunk(degree, 1)])
    state = torch.randn(9).to(dtype)
    for rank in range(degree):
        beside = torch.cat([state, packed, state])
        here = beside[9:33].view(degree, 4, -1)[rank]
        own = {"w": part(here, rank, full, 1, degree)}
        assert told(own, [here]) == {"w": True}
        others = [one for r, one in enumerate(beside[9:33].view(degree, -1)) if r != rank]
        assert told(own, [], others) == {"w": False}  # they are other tensors
        beside[others[-1].storage_offset()] += 1  # one number is not there
        assert told(own, []) == {"w": False}


def test_before_it_is_loaded_there_is_room_for_it_and_nothing_else() -> None:
    for rank, here in enumerate(torch.zeros(ROWS, COLUMNS).chunk(2)):
        assert kept(here, rank) is None
    first, second = torch.zeros(ROWS, COLUMNS).chunk(2)
    assert kept(first, 1) is False  # where rank 0's part would be, there is nothing
    assert kept(first, 0, [second]) is False
    larger = torch.zeros(2 * ROWS, COLUMNS)
    assert kept(larger[:3], 0) is False  # gradients, or what else it may be
    assert kept(larger[:3], 0, [larger[ROWS:]]) is None
    assert kept(larger[:3], 0, [larger[ROWS + 1 :]]) is False


def buffer(*sizes: int) -> Sequence[Tensor]:
    return torch.zeros(sum(sizes)).split(list(sizes))


@pytest.mark.parametrize("padding", [0, 4])
def test_whole_tensors_of_several_parts_fill_a_storage(padding: int) -> None:
    """Two are sharded, one is whole; what may lie between them is only theirs where it has a
    name."""
    one, pad, two, three = buffer(60, padding, 22, 44)
    first, second = torch.randn(60), torch.randn(22)
    for rank in (0, 1):
        here = {"one": one.chunk(2)[rank], "two": two.chunk(2)[rank]}
        parts = {"one": part(here["one"], rank, first), "two": part(here["two"], rank, second)}
        others = [*here.values(), three, pad]
        assert told(parts, others) == {"one": None, "two": None}
        assert told(parts, [*others, one]) == {"one": None, "two": None}  # the whole one
        assert told(parts, [*here.values(), pad]) == {"one": False, "two": False}
        assert told({"one": parts["one"]}, others) == {"one": False}
        if padding:
            assert told(parts, others[:-1]) == {"one": False, "two": False}


@pytest.mark.parametrize("unit", [1, 4, 8, 64, 128])
def test_a_buffer_of_the_ranks_own_has_no_room(unit: int) -> None:
    """Each tensor begins at a multiple of the unit; what is whole may come first, or last."""
    orders = [("norm", "up", "down"), ("up", "norm"), ("norm", "up"), ("up", "down")]
    sizes = {"norm": 8, "up": 16, "down": 16}
    for order in orders:
        aligned = [-(-sizes[name] // unit) * unit for name in order]
        places_ = dict(zip(order, buffer(*aligned), strict=True))
        here = {name: places_[name][: sizes[name]] for name in order}
        full = {name: torch.randn(2 * sizes[name]) for name in order if name != "norm"}
        by_rank = [
            told({n: part(here[n], rank, full[n]) for n in full}, [*here.values()])
            for rank in (0, 1)
        ]
        assert not any(all(found[name] is None for found in by_rank) for name in full)
        assert not any(any(found.values()) for found in by_rank)


def test_a_copy_of_the_part_is_not_the_others() -> None:
    """A main copy that nobody names, of weights whose parts coincide or are of few values."""
    torch.manual_seed(0)
    grid = torch.tensor([-0.3, -0.2, -0.1, 0.1, 0.2, 0.3])
    unit = torch.randn(3, COLUMNS)
    for full in (
        torch.tensor([1.0, 2.0, 1.0, 2.0]),
        torch.randint(-2, 3, (4,)).float(),
        unit.repeat(2, 1),
        grid[torch.randint(6, (6, 8))],
    ):
        own = full.chunk(2)[0]
        for rank in (0, 1):
            main = torch.cat([full.chunk(2)[rank]] * 3)
            here = main[len(own) : 2 * len(own)]
            assert not kept(here, rank, full=full)
    assert kept(FULL.clone()[:3], 0) is True


@pytest.mark.parametrize("beside", [0.0, 1.0])
def test_memory_of_one_number_is_not_the_others(beside: float) -> None:
    """Zeroed gradients, or padding, beside a part where the other ranks' parts are pruned."""
    full = FULL.clone()
    full[3:] = beside
    arena = torch.cat([full[:3].flatten(), torch.full((3 * COLUMNS + 4,), beside)])
    assert kept(arena[: 3 * COLUMNS].view(3, COLUMNS), 0, full=full) is False


def test_numbers_that_the_rank_has_elsewhere_are_not_the_others() -> None:
    """Two layers of the same blocks, exchanged, or a whole tensor that begins as a sharded one."""
    a, b = torch.randn(3, COLUMNS), torch.randn(3, COLUMNS)
    left, right = torch.cat([a, b]), torch.cat([b, a])
    for copies in (1, 2):
        flat = torch.cat([a, b] * copies)
        parts = {"left": part(flat[:3], 0, left), "right": part(flat[3:6], 0, right)}
        assert not any(told(parts, []).values())
    arena = torch.cat([FULL.flatten()] * 2 + [FULL[:3].flatten()])
    due, here = arena[:60].view(ROWS, COLUMNS), arena[120:].view(3, COLUMNS)
    assert told({"w": part(here, 0)}, [], [due]) == {"w": False}
    assert told({"w": part(here, 0)}, [due]) == {"w": True}  # the reference has none


def test_what_rounds_to_numbers_of_the_rank_is_not_the_others() -> None:
    """Its own numbers once more, in bfloat16, which has 64 of such a range."""
    torch.manual_seed(0)
    full = torch.rand(4096) / 4 + 0.5
    for rank, here in enumerate(full.chunk(2)):
        arena = torch.cat([here, here.bfloat16().view(torch.float32)])
        assert kept(arena[:2048], rank, full=full) is False
    arena = torch.cat([full[:2048], full[2048:].bfloat16().view(torch.float32)])
    assert kept(arena[:2048], 0, full=full) is False  # 64 numbers do not tell


@pytest.mark.parametrize("pruned", [(0, 2), (1, 2), (0, 64)])
def test_zeros_among_the_others_numbers_hide_nothing(pruned: tuple[int, int]) -> None:
    full, (first, step) = torch.randn(16, 64), pruned
    full[:, first::step] = 0.0
    norm = torch.cat([full.flatten(), torch.zeros(8)])
    assert told({"w": part(full[:8].clone(), 0, full)}, [], [norm[-8:]]) == {"w": True}


def test_two_storages_may_begin_at_one_address() -> None:
    numbers = np.zeros(8, dtype=np.float32)
    first, all_ = torch.from_numpy(numbers[:2]), torch.from_numpy(numbers)
    for due in ([first, all_], [all_, first]):
        assert told({"w": part(all_[:4], 0, torch.randn(8))}, [], due) == {"w": False}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.int32])
def test_memory_that_was_given_back_is_not_looked_at(dtype: torch.dtype) -> None:
    freed = torch.zeros(4, dtype=dtype)
    freed.untyped_storage().resize_(0)
    assert not has_storage(freed) and kept(FULL.clone()[:3], 0, [freed]) is True


def test_they_may_lie_in_the_storage_of_another_tensor_or_in_another_dtype() -> None:
    norm = torch.cat([FULL.flatten(), torch.zeros(4)])
    here = FULL[:3].clone()
    whole = {"w": part(here, 0)}
    assert told(whole, [], [norm[-4:]]) == {"w": True}
    assert told(whole, [], [norm]) == {"w": False}
    assert told(whole, [norm]) == told(whole, [norm[-4:]]) == {"w": False}  # its own buffer
    assert told({"w": part(FULL[:0].clone(), 1)}, [], [norm[-4:]]) == {"w": True}
    assert kept(FULL.clone()[ROWS:], 6, degree=7) is True  # an empty part of the whole
    raw = torch.cat([FULL.double().view(-1).view(torch.uint8), here.view(-1).view(torch.uint8)])
    assert kept(raw[480:].view(torch.float32).view(3, 10), 0) is True
    half = torch.cat([FULL.flatten(), torch.zeros(2)]).bfloat16()
    assert told(whole, [], [half[-2:]]) == {"w": True}
    assert told(whole, [], [FULL.bfloat16()]) == {"w": False}


def test_columns_of_fused_ones_are_judged_together() -> None:
    q, k = torch.zeros(ROWS, 2 * COLUMNS).unflatten(1, (2, COLUMNS)).unbind(1)
    own = {"q": q.chunk(2)[0], "k": k.chunk(2)[0]}
    parts = {name: part(here, 0) for name, here in own.items()}
    assert told(parts, [*own.values()]) == {"q": None, "k": None}
    assert told({"q": parts["q"]}, [*own.values()]) == {"q": False}
    assert kept(torch.zeros(ROWS, 16)[:, :5], 1, dim=1) is False  # rows that are aligned


def test_a_storage_of_another_element_size_is_not_filled() -> None:
    raw = torch.zeros(2 * FULL.nbytes, dtype=torch.uint8)
    here, other = raw.view(torch.float32)[:30].view(3, 10), raw[FULL.nbytes :]
    assert kept(here, 0, [other]) is None and kept(here, 0, [other[8:]]) is False
    raw[FULL.nbytes :].copy_(FULL.flip(0).clone().flatten().view(torch.uint8))
    assert kept(here, 0) is True and kept(here, 0, [other]) is None


def test_a_buffer_of_one_number_lies_in_one_place() -> None:
    raw = torch.zeros(ROWS * COLUMNS + 1)
    here, one = raw[:30].view(3, 10), raw[-1:].expand(COLUMNS)
    assert kept(here, 0, [one]) is None


class Own(nn.Parameter):
    """One that knows more, as some frameworks have."""


def test_what_wraps_others_has_no_memory_to_look_at() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    assert has_storage(Own(torch.zeros(2)))
    with FakeTensorMode():
        assert not has_storage(torch.zeros(2))
    with warnings.catch_warnings(action="ignore"):  # they are a prototype
        nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    for one in (torch.eye(2).to_sparse(), FULL.to("meta"), nested):
        assert not has_storage(one)
    here = FULL.clone()[:3]
    assert kept(here, 0, [torch.eye(2).to_sparse(), FULL.to("meta"), torch.empty(0)]) is True


def test_gradients_are_the_ranks_and_attributes_may_be_anything() -> None:
    module = nn.Linear(2, 2)
    module.weight.main_grad = torch.zeros(2, 2)  # type: ignore[attr-defined]
    module.bias.grad = torch.zeros(2)
    module.cache = torch.zeros(3)
    assert sorted(t.numel() for t in in_memory(module)) == [2, 2, 4, 4]


def test_a_part_that_is_all_of_it_or_nothing_is_no_view_of_the_whole() -> None:
    report = RankReport(0)
    views = Views(Case({}, dtype="float32", mesh={"tp": 2}), report)
    module = nn.Linear(COLUMNS, 3, bias=False)
    module.weight = nn.Parameter(FULL.clone()[:3])
    report.entries = {"weight": Shard(0), "none": Shard(0), "all": Shard(0)}
    views.note("none", torch.randn(ROWS, COLUMNS), torch.zeros(9)[:0])
    views.note("all", FULL, torch.cat([FULL, FULL])[:ROWS])
    assert report.room == {"none": (0, 0), "all": (0, 0)} and not [*views.keeping(module, {})]
    views.note("weight", FULL, module.weight)
    assert [*views.keeping(module, {"weight": module.weight})] == [
        ("weight", {"storage": 240, "expected": 120, "inside": None})
    ]
