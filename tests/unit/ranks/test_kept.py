"""Tensors whose bits, and whose memory, are kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tpcheck.ranks.kept import Kept
from tpcheck.vocabulary import Habit


def found(before: Tensor, change: Callable[[Tensor], object]) -> list[tuple[int | None, int]]:
    kept = Kept({"x": before})
    change(before)
    return [(one.elements, one.beside) for _, one in kept.changed(Habit.CHANGES_INPUT)]


def within() -> Tensor:
    """Four numbers in the middle of eight."""
    return torch.zeros(8)[2:6]


@pytest.mark.parametrize(
    ("change", "elements", "beside"),
    [
        (lambda x: x[1:3].add_(1), 2, 0),
        (lambda x: x.neg_(), 4, 0),
        (lambda x: x.fill_(torch.nan), 4, 0),
        (lambda x: setattr(x, "data", torch.ones(4)), 4, 0),
        (lambda x: setattr(x, "data", torch.zeros(5)), 4, 0),
        (lambda x: x.set_(torch.zeros(2)), 4, 0),
        (lambda x: x.untyped_storage().resize_(0), 4, 0),
        (lambda x: x._base[0].add_(1.0), None, 2),
    ],
    ids=["part", "zeros' signs", "NaN", "other numbers", "shape", "set", "freed", "beside"],
)
def test_what_changed_is_told(
    change: Callable[[Tensor], object], elements: int | None, beside: int
) -> None:
    before = torch.zeros(4) if elements == 4 else within()
    assert found(before, change) == [(elements, beside)]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(1).sub_(1),
        lambda x: setattr(x, "data", torch.zeros(4)),
        lambda x: x.untyped_storage().resize_(800),
    ],
    ids=["undone", "the same elsewhere", "grown"],
)
def test_what_is_as_it_was_is_not(change: Callable[[Tensor], object]) -> None:
    assert found(torch.zeros(4), change) == []


def test_a_nan_that_stays_is_as_it_was() -> None:
    assert found(torch.full((3,), torch.nan), lambda x: x[0].fill_(torch.nan)) == []


@pytest.mark.parametrize("given", [torch.zeros(2).to_sparse(), torch.zeros(2, device="meta")])
def test_what_has_no_memory_to_look_at_is_left_out(given: Tensor) -> None:
    assert found(given, lambda x: None) == []


def test_elements_are_told_once_and_though_memory_beside_them_was_told_before() -> None:
    before = within()
    kept, told = Kept({"x": before}), []
    for change in (lambda: before._base[0].add_(1.0), lambda: before.add_(1), before.neg_):
        change()
        told += [[(one.elements, one.beside) for _, one in kept.changed(Habit.REUSES_OUTPUT)]]
    assert told == [[(None, 2)], [(4, 0)], []]
