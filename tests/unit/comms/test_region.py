"""What a rank has on the board, read while it begins another case."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.comms.test_board import EPOCH, WORLD, boards, post
from tpcheck.comms.board import Board
from tpcheck.comms.post import Post

__all__ = ["boards"]  # a fixture


class Meanwhile:
    """The head of a rank that does something between two numbers that another reads of it."""

    def __init__(self, head: memoryview, then: Callable[[], None], reads: int) -> None:
        self.head, self.then, self.reads = head, then, reads

    def __getitem__(self, number: int) -> int:
        found: int = self.head[number]
        self.reads -= 1
        if not self.reads:
            self.then()
        return found


@pytest.mark.parametrize("reads", range(1, 6))
def test_who_begins_a_case_while_others_look_waits_for_nobody(
    boards: tuple[Board, Board], reads: int
) -> None:
    """Rank 1 ended the case before in a collective that rank 0 is not in, in the new one."""
    writer, reader = boards
    writer.post(1, EPOCH, replace(post(0, members=(0, 1)), awaits=(0, 1)))
    writer.begin(0, EPOCH + 1)
    writer.post(0, EPOCH + 1, replace(post(0), awaits=WORLD))
    region = reader._regions[1]
    head, said = region.head, [0]

    def begin() -> None:
        region.head = head
        writer.begin(1, EPOCH + 1)
        said.append(1)

    region.head = Meanwhile(head, begin, reads)  # type: ignore[assignment]
    assert reader.circle(0, EPOCH + 1) == []
    assert reader.last(1, EPOCH + 1) == [] and reader.count(1, EPOCH + 1) == 0
    assert said == [0, 1] or reads > 3


def test_a_board_elsewhere_begins_a_case_before_it_counts(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    for step in range(3):
        writer.post(1, EPOCH, post(step))
    elsewhere, memory = Board.new(3)
    os.close(memory)
    news, known = reader.news(1, (0, 0))
    elsewhere.take(1, news)
    writer.begin(1, EPOCH + 1)
    writer.post(1, EPOCH + 1, post(0))
    seen: list[tuple[int, int]] = []

    class Watched:
        def __init__(self, head: memoryview) -> None:
            self.head = head

        def __getitem__(self, number: int) -> int:
            return int(self.head[number])

        def __setitem__(self, number: int | slice, value: Any) -> None:
            self.head[number] = value
            seen.append((self.head[0], self.head[2]))

    region = elsewhere._regions[1]
    region.head = Watched(region.head)  # type: ignore[assignment]
    elsewhere.take(1, reader.news(1, known)[0])
    assert (EPOCH + 1, 3) not in seen and seen[-1] == (EPOCH + 1, 1)
    assert set(seen) >= {(EPOCH, 0), (EPOCH + 1, 0)}


def test_what_is_read_while_news_are_written_is_of_one_collective(
    boards: tuple[Board, Board],
) -> None:
    """An all-to-all of one element in one case, of two in the next: a third of neither."""
    writer, reader = boards
    members = (0, 1)

    def exchange(count: int) -> Post:
        return replace(post(0, f"of {count}", members), sent=(count,) * 2, received=(count,) * 2)

    elsewhere, memory = Board.new(3)
    os.close(memory)
    writer.post(1, EPOCH, exchange(1))
    news, known = reader.news(1, (0, 0))
    elsewhere.take(1, news)
    writer.begin(1, EPOCH + 1)
    writer.post(1, EPOCH + 1, exchange(2))
    found: list[Post | None] = []

    class Watched:
        """An array of slots, read as a rank would after each time that some of it is written."""

        def __init__(self, array: Any) -> None:
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __setitem__(self, where: Any, value: Any) -> None:
            self.array[where] = value
            found.append(elsewhere.find(1, EPOCH + 1, exchange(2).group, 0))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.array, name)

        def __getitem__(self, where: Any) -> Any:
            return self.array[where]

    region = elsewhere._regions[1]
    region.arrays = tuple(map(Watched, region.arrays))  # type: ignore[assignment]
    elsewhere.take(1, reader.news(1, known)[0])
    assert len(found) == 5 and set(found) <= {None, exchange(2)}
    assert elsewhere.find(1, EPOCH + 1, exchange(2).group, 0) == exchange(2)
