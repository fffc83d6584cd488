"""What a function keeps of its inputs between calls."""

import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from tpcheck.ranks.kept import same
from tpcheck.ranks.remembered import remembered

Key = Callable[[Tensor], Any]
FLOATS = torch.tensor([[1.0, -2.0], [0.5, 4.0]])
INTEGERS = torch.tensor([3, 0, 7])
FLAGS = torch.tensor([True, True])


def keeps(key: Key) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Gives what it gave first for a key."""
    kept: dict[Any, Tensor] = {}

    def call(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        own = inputs["own"]
        if key(own) not in kept:
            kept[key(own)] = own.detach() * 2
        return {"output": inputs["x"] + kept[key(own)].double().sum()}

    return call


def holds(*, version: bool) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Holds the last object, and gives what it gave for it; for its version, or for any."""
    last: list[Any] = [None, 0, None]

    def call(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        own = inputs["own"]
        if last[0] is not own or (version and last[1] != own._version):
            last[:] = own, own._version, own.detach() * 2
        return {"output": inputs["x"] + last[2].double().sum()}

    return call


def anew(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"output": inputs["x"] + inputs["own"].double().sum()}


class Saves(torch.autograd.Function):
    """By `id` and version, and the graph has the object."""

    kept: ClassVar[dict[Any, Tensor]] = {}

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        ctx.save_for_backward(own)
        return Saves.kept.setdefault((id(own), own._version), own.detach() * 2).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient


def saves(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"output": Saves.apply(inputs["own"])}


def given(own: Tensor) -> dict[str, Tensor]:
    takes = own.is_floating_point()
    return {"x": torch.ones(2), "own": own.clone().requires_grad_(takes)}


def found(call: Any, own: Tensor) -> list[bool]:
    """Of what changed in place, of others in its memory and of others with its `id`: whether
    outputs are those of before."""
    return [not same(right, it) for right, it in remembered(call, given(own), given(own))]


KEYS: dict[str, Key] = {
    "address": lambda t: t.data_ptr(),
    "address and version": lambda t: (t.data_ptr(), t._version),
    "id": id,
    "id and version": lambda t: (id(t), t._version),
    "id, version and shape": lambda t: (id(t), t._version, t.shape, t.dtype),
}


@pytest.mark.parametrize("own", [FLOATS, INTEGERS, FLAGS], ids=["floats", "integers", "flags"])
@pytest.mark.parametrize("key", KEYS)
def test_what_is_kept_by_what_another_tensor_may_have_is_seen(key: str, own: Tensor) -> None:
    assert any(found(keeps(KEYS[key]), own))


@pytest.mark.parametrize("own", [FLOATS, INTEGERS, FLAGS], ids=["floats", "integers", "flags"])
def test_an_object_that_changes_in_place_is_another(own: Tensor) -> None:
    assert any(found(holds(version=False), own))
    assert not any(found(holds(version=True), own))


def test_an_object_that_a_graph_had_is_gone_with_it() -> None:
    Saves.kept.clear()
    assert any(found(saves, FLOATS))


@pytest.mark.parametrize("own", [FLOATS, INTEGERS, FLAGS], ids=["floats", "integers", "flags"])
def test_who_keeps_nothing_or_the_numbers_is_right(own: Tensor) -> None:
    assert not any(found(anew, own))
    assert not any(found(keeps(lambda t: tuple(t.detach().flatten().tolist())), own))


@pytest.mark.parametrize("own", [FLOATS, INTEGERS, FLAGS], ids=["floats", "integers", "flags"])
def test_who_sees_that_the_memory_was_given_back_is_right(own: Tensor) -> None:
    kept: dict[int, tuple[StorageWeakRef, int, Tensor]] = {}

    def call(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        tensor = inputs["own"]
        key = tensor.untyped_storage()._cdata
        known = kept.get(key)
        if known is None or known[0].expired() or known[1] != tensor._version:
            about = tensor._version, anew(inputs)["output"]
            known = kept[key] = (StorageWeakRef(tensor.untyped_storage()), *about)
        return {"output": known[2]}

    assert not any(found(call, own))


def test_who_lets_go_with_the_tensor_is_right() -> None:
    kept: dict[Any, Tensor] = {}

    def call(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        own = inputs["own"]
        key = (own.data_ptr(), own._version)
        if key not in kept:
            kept[key] = own.detach() * 2
            weakref.finalize(own, kept.pop, key, None)
        return {"output": inputs["x"] + kept[key].sum()}

    assert found(call, FLOATS) == [False] * 3


@pytest.mark.parametrize("cycle", [False, True], ids=["a list", "a cycle"])
def test_memory_that_somebody_holds_is_not_given_back(cycle: bool) -> None:
    kept: dict[int, tuple[list[Any], int, Tensor]] = {}

    def call(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        own = inputs["own"]
        known = kept.get(own.data_ptr())
        if known is None or known[1] != own._version:
            holds: list[Any] = [own]
            holds += [holds] * cycle
            known = kept[own.data_ptr()] = (holds, own._version, own.detach() * 2)
        return {"output": inputs["x"] + known[2].sum()}

    assert found(call, FLOATS) == [False] * 3


def test_a_storage_that_somebody_holds_is_not_given_back() -> None:
    kept: dict[int, tuple[Tensor, int]] = {}

    def call(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        own = inputs["own"]
        known = kept.get(own.data_ptr())
        if known is None or known[1] != own._version:
            known = kept[own.data_ptr()] = (own.detach(), own._version)
        return {"output": inputs["x"] + 2 * known[0].sum()}

    assert found(call, FLOATS) == [False] * 3


def test_what_goes_by_the_address_alone_is_seen_of_tensors_that_nobody_has_met() -> None:
    kept: dict[int, Tensor] = {}

    def call(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        own = kept.setdefault(inputs["own"].data_ptr(), inputs["own"].detach().clone())
        return {"output": inputs["x"] + 2 * own.sum()}

    assert any(found(call, FLOATS))


def test_what_is_kept_of_memory_that_is_given_back_can_be_read() -> None:
    kept: list[Tensor] = []

    def call(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        kept.append(inputs["own"].detach())
        return anew(inputs)

    own = torch.arange(3.0)
    found(call, own)
    assert [one._version for one in kept[2:4]] == [0, 0], "as of new ones"
    others = [torch.full((3,), 9.0) for _ in range(100)]
    assert not any((one == 9.0).any() for one in kept) and len(others) == 100


def test_integers_stay_within_those_that_there_were() -> None:
    seen: list[Tensor] = []

    def call(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        seen.append(inputs["own"].clone())
        return anew(inputs)

    assert found(call, INTEGERS) == [False] * 3
    assert {(int(one.min()), int(one.max())) for one in seen} == {(0, 7)}
    assert len({tuple(one.tolist()) for one in seen}) == 2


def test_what_refuses_other_numbers_is_not_told() -> None:
    def call(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        if not torch.equal(inputs["own"], INTEGERS):
            raise ValueError("these are not sorted as they were")
        return anew(inputs)

    assert found(call, INTEGERS) == []


def test_two_that_are_one_tensor_stay_one_and_change() -> None:
    seen: list[bool] = []

    def call(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        seen.append(inputs["x"] is inputs["own"])
        return kept(inputs)

    one, other = FLOATS.clone(), FLOATS.clone()
    kept = keeps(KEYS["address and version"])
    both = {"x": one, "own": one}
    pairs = list(remembered(call, both, {"x": other, "own": other}))
    assert all(seen) and any(not same(right, own) for right, own in pairs)
