"""What programs may touch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tpcheck.evidence import Stray
from tpcheck.kernels import watch
from tpcheck.kernels.stopped import Stopped
from tpcheck.kernels.watch import View, Watch
from tpcheck.vocabulary import Access

WIDE = torch.zeros(4, 10)
FORMATS = {
    "contiguous": torch.zeros(3, 5),
    "padded": WIDE[:, 2:7],
    "transposed": torch.zeros(5, 3).t(),
    "every second": torch.zeros(3, 11)[:, 1::2],
    "expanded": torch.zeros(1, 5).expand(3, 5),
    "interleaved": torch.as_strided(torch.zeros(20), (3, 4), (2, 3)),
    "one": torch.zeros(1),
}


@pytest.mark.parametrize(
    ("offset", "size", "is_held"),
    [(0, 4, True), (0, 8, True), (16, 4, True), (16, 8, False), (17, 1, True), (18, 4, False)],
)
def test_all_bytes_of_an_access_are_looked_at(offset: int, size: int, is_held: bool) -> None:
    tensor = torch.zeros(5)
    at = np.array([tensor.data_ptr() + offset])
    assert View.of("x", tensor).covers(at, size=size).tolist() == [is_held]


def addresses(tensor: Tensor) -> set[int]:
    """Of its elements, one by one."""
    size = tensor.element_size()
    return {tensor[index].data_ptr() for index in np.ndindex(*tensor.shape) if size}


@pytest.mark.parametrize("tensor", FORMATS.values(), ids=FORMATS)
def test_a_view_holds_the_addresses_of_its_elements_and_no_other(tensor: Tensor) -> None:
    storage = tensor.untyped_storage()
    every = np.arange(storage.data_ptr() - 16, storage.data_ptr() + storage.nbytes() + 16)
    held = View.of("x", tensor).holds(every)
    assert set(every[held].tolist()) == addresses(tensor)


Did = tuple[Access, list[int], list[float] | None]


def run(programs: list[list[Did]]) -> Watch:
    """A launch over a tensor of eight numbers: of each program its accesses, by element."""
    tensor = torch.zeros(8)
    with watch.watching({"x": tensor}) as found, watch.launch("kernel", [("x", tensor)]):
        for number, accesses in enumerate(programs):
            for what, elements, values in accesses:
                at = np.array([tensor.data_ptr() + 4 * element for element in elements])
                given: Any = None if values is None else np.float32(values)
                watch.access(what, (number, 0, 0), at.astype(np.uint64), 4, np.True_, given)
    return found


STORE, LOAD, ATOMIC = Access.STORE, Access.LOAD, Access.ATOMIC


def test_an_access_outside_is_stopped_and_told() -> None:
    with pytest.raises(Stopped) as caught:
        run([[(STORE, [7, 8, 9], [1, 2, 3])]])
    stray = caught.value.found
    assert isinstance(stray, Stray)
    assert (stray.tensor, stray.offset, stray.lanes) == ("x", 32, 2)
    assert stray.access is STORE and stray.line > 0


def test_of_other_tensors_the_whole_storage_may_be_touched() -> None:
    own, other = WIDE[:, 2:7], torch.zeros(4, 10)[:, 2:7]
    for tensor, allowed in ((own, False), (other, True)):
        before = np.array([tensor.data_ptr() - 4], dtype=np.uint64)
        with watch.watching({"x": own}), watch.launch("kernel", [("x", tensor)]):
            if allowed:
                watch.access(LOAD, (0, 0, 0), before, 4, np.True_)
            else:
                with pytest.raises(Stopped):
                    watch.access(LOAD, (0, 0, 0), before, 4, np.True_)


def test_of_each_access_is_noted_whether_none_some_or_all_lanes_made_it() -> None:
    tensor = torch.zeros(8)
    at = np.array([tensor.data_ptr() + 4 * element for element in range(4)], np.uint64)
    seen: list[set[str]] = []
    for mask in (np.True_, np.array([1, 1, 0, 0]), np.zeros(4)):
        with watch.watching({"x": tensor}) as found, watch.launch("kernel", [("x", tensor)]):
            watch.access(LOAD, (0, 0, 0), at, 4, mask)
        masks = {word for word in found.ways if word.startswith("mask kernel:")}
        seen.append({word.split()[-1] for word in masks})
    assert seen == [{"all"}, {"some"}, {"none"}]


def test_of_each_launch_its_flags_are_noted_and_whether_it_has_many_programs() -> None:
    given = [("x", torch.zeros(8)), ("FAST", True), ("BLOCK", 64), ("scale", 0.5)]
    shown: dict[int, set[str]] = {}
    for programs in (1, 2, 3, 9):
        with watch.watching({}) as found, watch.launch("kernel", given, ["FAST", "BLOCK"]):
            for _ in range(programs):
                watch.turn()
        shown[programs] = found.ways
    assert shown[1] == {"launch kernel FAST=True", "launch kernel programs=1"}
    assert shown[2] - shown[1] == {"launch kernel programs=2"}
    assert shown[3] == shown[9] != shown[2]
