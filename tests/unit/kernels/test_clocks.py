"""What atomics order, and what they do not."""

from __future__ import annotations

import numpy as np

from tpcheck.kernels.clocks import Clocks, Stamp, ordered

A, B, C = (0, 0, 0), (1, 0, 0), (2, 0, 0)
LOCK, OTHER = np.array([64]), np.array([128])
BOTH = np.concatenate([LOCK, OTHER])


def is_ordered(earlier: Stamp, later: Stamp) -> bool:
    return bool(ordered([earlier], [later])[0, 0])


def atomic(
    clocks: Clocks,
    program: tuple[int, int, int],
    where: np.ndarray = LOCK,
    *,
    acquires: bool = True,
    releases: bool = True,
    looks: bool = True,
) -> None:
    tell = clocks.atomic(program, where, acquires=acquires, releases=releases)
    if tell is not None and looks:
        tell()


def test_what_comes_before_a_release_is_before_what_follows_an_acquire() -> None:
    clocks = Clocks()
    before = clocks.now(A)
    atomic(clocks, A)
    between = clocks.now(A)
    early = clocks.now(B)
    atomic(clocks, B)
    after = clocks.now(B)
    assert is_ordered(before, after)
    assert not is_ordered(between, after)
    assert not is_ordered(before, early)
    assert is_ordered(before, between)


def test_a_half_of_it_orders_nothing() -> None:
    for acquires, releases, looks in [
        (False, True, True),
        (True, False, True),
        (False, False, True),
        (True, True, False),
    ]:
        clocks = Clocks()
        before = clocks.now(A)
        atomic(clocks, A, releases=releases)
        atomic(clocks, B, acquires=acquires, looks=looks)
        assert not is_ordered(before, clocks.now(B))


def test_a_result_that_is_looked_at_later_orders_from_then_on() -> None:
    clocks = Clocks()
    before = clocks.now(A)
    atomic(clocks, A)
    tell = clocks.atomic(B, LOCK, acquires=True, releases=True)
    first = clocks.now(B)
    assert tell is not None
    tell()
    assert not is_ordered(before, first) and is_ordered(before, clocks.now(B))


def test_lanes_that_share_an_address_are_one() -> None:
    clocks = Clocks()
    atomic(clocks, A)
    atomic(clocks, B, np.concatenate([LOCK, LOCK]))
    before = clocks.now(A)
    atomic(clocks, A, np.concatenate([LOCK, OTHER, LOCK]))
    atomic(clocks, C, OTHER)
    assert is_ordered(before, clocks.now(C))


def test_another_address_orders_nothing_and_one_of_several_does() -> None:
    for where, is_so in ((OTHER, False), (BOTH, True)):
        clocks = Clocks()
        before = clocks.now(A)
        atomic(clocks, A)
        atomic(clocks, B, where)
        assert is_ordered(before, clocks.now(B)) is is_so


def test_order_goes_on_through_a_third_program() -> None:
    clocks = Clocks()
    before = clocks.now(A)
    atomic(clocks, A)
    atomic(clocks, B)
    atomic(clocks, B, OTHER)
    atomic(clocks, C, OTHER)
    assert is_ordered(before, clocks.now(C))


def test_an_atomic_between_hands_on_what_an_earlier_one_has_left() -> None:
    clocks = Clocks()
    before = clocks.now(A)
    atomic(clocks, A)
    atomic(clocks, B, acquires=False)  # B itself knows nothing of A
    assert not is_ordered(before, clocks.now(B))
    atomic(clocks, C)
    assert is_ordered(before, clocks.now(C))
