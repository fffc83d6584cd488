"""The board: what one process posts another reads; a case's posts end with the case."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tpcheck.comms.board import Board
from tpcheck.comms.memory import close_to_others
from tpcheck.comms.post import Post, digest
from tpcheck.comms.region import SLOTS, TEXT

EPOCH = 7
WORLD = (0, 1, 2)


@pytest.fixture
def boards() -> tuple[Board, Board]:
    """Two views of one memory, as a rank and the driver have them."""
    writer, memory = Board.new(3)
    for rank in range(3):
        writer.begin(rank, EPOCH)
    reader = Board(memory, 3)
    os.close(memory)
    return writer, reader


@pytest.fixture
def memory() -> Iterator[int]:
    """The descriptor of a board of one rank, on which rank 0 has started a case."""
    board, memory = Board.new(1)
    board.begin(0, EPOCH)
    yield memory
    os.close(memory)


def post(step: int, text: str = "all_reduce(sum)", members: tuple[int, ...] = WORLD) -> Post:
    return Post(members, step, digest(text), text)


def test_a_reader_finds_what_a_writer_posted(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    mine = post(0, "all_reduce(sum) float32[4, 8] – ×", (0, 2))
    writer.post(2, EPOCH, mine)

    assert reader.find(2, EPOCH, mine.group, 0) == mine
    assert reader.last(2, EPOCH) == [mine] and reader.count(2, EPOCH) == 1


def test_another_rank_step_group_or_case_is_not_found(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    mine = post(0)
    writer.post(1, EPOCH, mine)

    assert reader.find(0, EPOCH, mine.group, 0) is None
    assert reader.find(1, EPOCH, mine.group, 1) is None
    assert reader.find(1, EPOCH, post(0, members=(0, 1)).group, 0) is None
    assert reader.find(1, EPOCH + 1, mine.group, 0) is None


def test_steps_of_groups_that_take_turns_are_found(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    pair = (0, 1)
    posts = [post(0), post(0, members=pair), post(1), post(1, members=pair), post(2)]
    for one in posts:
        writer.post(0, EPOCH, one)
    assert [reader.find(0, EPOCH, one.group, one.step) for one in posts] == posts
    assert reader.find(0, EPOCH, posts[0].group, 3) is None
    assert reader.find(0, EPOCH, posts[1].group, 2) is None


def test_another_collective_as_the_same_step_is_unlike(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    for step in (0, 1):
        writer.post(1, EPOCH, post(step, members=(0, 1)))
    writer.post(1, EPOCH, post(0, "barrier"))
    assert reader.is_unlike(1, EPOCH, post(0))
    assert reader.is_unlike(1, EPOCH, post(1, "barrier", (0, 1)))
    assert not reader.is_unlike(1, EPOCH, post(0, "barrier"))
    assert not reader.is_unlike(1, EPOCH, post(1, members=(0, 1)))
    assert not reader.is_unlike(1, EPOCH, post(1)), "it has not come there"
    assert not reader.is_unlike(0, EPOCH, post(0)), "nor has that one"


def test_a_board_elsewhere_has_what_it_is_told(boards: tuple[Board, Board]) -> None:
    writer, known = boards[0], (0, 0)
    elsewhere, memory = Board.new(3)
    os.close(memory)
    for begin in (0, 2, SLOTS + 1):  # from nothing, from where it was, and more than is kept
        for step in range(begin, begin + 2 + begin):
            members = (0, 2) if step % 2 else WORLD
            exchanged = ((1, 2, step), (step, 4, 6)) if step % 3 else ((), ())
            writer.post(2, EPOCH, Post(members, step, digest("x"), f"{step}", 9, (0,), *exchanged))
        writer.turn(2)
        news, known = writer.news(2, known)
        elsewhere.take(2, news)
        assert elsewhere.last(2, EPOCH, SLOTS) == writer.last(2, EPOCH, SLOTS) != []
        assert elsewhere.count(2, EPOCH) == writer.count(2, EPOCH)
        assert elsewhere.turns(2, EPOCH) == writer.turns(2, EPOCH)
    news, _ = writer.news(2, known)
    assert len(news) == Board.HEAD + 4


def test_another_process_reads_the_same_board(memory: int) -> None:
    Board(memory, 1).post(0, EPOCH, post(0, "barrier"))
    code = (
        "import sys; from tpcheck.comms.board import Board\n"
        f"print(Board(int(sys.argv[1]), 1).last(0, {EPOCH})[0].text)"
    )
    there = subprocess.run(
        [sys.executable, "-c", code, str(memory)], capture_output=True, text=True, pass_fds=[memory]
    )
    assert (there.stdout.strip(), there.returncode) == ("barrier", 0)


def test_nobody_takes_the_memory_from_under_a_board(memory: int) -> None:
    board = Board(memory, 1)
    with pytest.raises(OSError):
        os.ftruncate(memory, 0)
    assert board.last(0, EPOCH) == []  # there, and not SIGBUS


def test_who_writes_to_every_descriptor_writes_to_no_board(memory: int) -> None:
    board = Board(memory, 1)
    close_to_others(memory)
    with pytest.raises(OSError):
        os.pwrite(memory, b"scribbled", 0)
    board.post(0, EPOCH, post(0))  # who had mapped it goes on
    assert board.count(0, EPOCH) == 1


def test_all_the_memory_of_a_board_is_there_from_the_start(memory: int) -> None:
    about = os.fstat(memory)
    assert about.st_blocks * 512 >= about.st_size


def test_a_board_says_who_has_built(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    assert not reader.is_built(0, EPOCH)
    writer.built(0)
    assert reader.is_built(0, EPOCH) and not reader.is_done(0, EPOCH)
    assert not reader.is_built(1, EPOCH) and not reader.is_built(0, EPOCH + 1)
    writer.done(0)
    assert reader.is_built(0, EPOCH) and reader.is_done(0, EPOCH)
    writer.begin(0, EPOCH + 1)
    assert not reader.is_built(0, EPOCH + 1)


def test_the_absent_are_the_members_that_did_not_enter_the_last_collective(
    boards: tuple[Board, Board],
) -> None:
    writer, reader = boards
    assert reader.absent(0, EPOCH) == []  # it has entered none
    writer.post(0, EPOCH, post(0))
    assert reader.absent(0, EPOCH) == [1, 2]
    writer.post(2, EPOCH, post(0, "another collective"))  # it came, if to the wrong one
    assert reader.absent(0, EPOCH) == [1]
    writer.post(1, EPOCH, post(0))
    assert reader.absent(0, EPOCH) == []
    writer.post(0, EPOCH, post(0, members=(0, 2)))
    assert reader.absent(0, EPOCH) == [2]  # rank 1 is no member of that group


def test_a_new_case_forgets_the_one_before(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    writer.post(0, EPOCH, post(0))
    writer.done(0)
    assert reader.is_done(0, EPOCH)
    writer.begin(0, EPOCH + 1)

    assert not reader.is_done(0, EPOCH) and not reader.is_done(0, EPOCH + 1)
    for epoch in (EPOCH, EPOCH + 1):
        assert reader.last(0, epoch) == [] and reader.count(0, epoch) == 0
    assert reader.find(0, EPOCH + 1, post(0).group, 0) is None


def test_done_is_said_of_one_rank_and_one_case(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    writer.done(1)
    assert [reader.is_done(rank, EPOCH) for rank in range(3)] == [False, True, False]
    assert not reader.is_done(1, EPOCH + 1)


def test_beyond_its_slots_a_rank_keeps_its_last_posts(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    total = SLOTS + 5
    for step in range(total):
        writer.post(0, EPOCH, post(step, f"step {step}"))
    writer.post(1, EPOCH, post(total - 1))

    assert reader.count(0, EPOCH) == total
    assert [p.step for p in reader.last(0, EPOCH)] == [total - 3, total - 2, total - 1]
    kept = [s for s in range(total) if reader.find(0, EPOCH, post(0).group, s) is not None]
    assert kept == list(range(5, total))
    assert reader.absent(0, EPOCH) == [2]


def test_a_text_too_long_is_cut_and_stays_readable(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    writer.post(0, EPOCH, post(0, "a" + "×" * TEXT))
    (read,) = reader.last(0, EPOCH)
    assert read.text.startswith("a×××") and len(read.text.encode()) <= TEXT + 2
    assert read.fingerprint == digest("a" + "×" * TEXT)
    writer.post(0, EPOCH, post(1, "short"))
    assert reader.last(0, EPOCH, 1)[0].text == "short"


def test_sixty_four_ranks_fit_and_the_members_come_back() -> None:
    board, memory = Board.new(64)
    os.close(memory)
    board.begin(63, EPOCH)
    mine = post(0, members=tuple(range(64)))
    board.post(63, EPOCH, mine)
    assert board.last(63, EPOCH) == [mine]
    assert board.absent(63, EPOCH) == list(range(63))


def waiting(board: Board, *posts: tuple[int, tuple[int, ...], int, bool]) -> None:
    """Posts (rank, members, step, whether it blocks), in order."""
    for rank, members, step, blocks in posts:
        awaits = members if blocks else ()
        board.post(rank, EPOCH, Post(members, step, digest("x"), "x", 0, awaits))


def test_ranks_that_wait_for_each_other_are_a_circle(boards: tuple[Board, Board]) -> None:
    waiting(boards[0], (1, (0, 1), 0, True), (0, WORLD, 0, True))
    assert boards[1].circle(0, EPOCH) == [0, 1]  # 0 waits for 1 in the world, 1 for 0 in the pair


def test_a_circle_may_be_longer_than_two(boards: tuple[Board, Board]) -> None:
    waiting(boards[0], (1, (1, 2), 0, True), (2, (0, 2), 0, True))
    assert boards[1].circle(2, EPOCH) == []  # rank 0 may still come
    waiting(boards[0], (0, (0, 1), 0, True))
    assert boards[1].circle(0, EPOCH) == [0, 1, 2]


@pytest.mark.parametrize(
    "posts",
    [
        [(1, WORLD, 0, True), (0, WORLD, 0, True)],  # the same one
        [(1, (0, 1), 0, False), (0, WORLD, 0, True)],  # rank 1 goes on and may come
        [(1, (0, 1), 0, True), (0, WORLD, 0, False)],  # rank 0 does
        [(1, (1, 2), 0, True), (0, WORLD, 0, True)],  # rank 1 waits for 2, which may come
        [(0, (0, 1), 0, False), (1, (0, 1), 0, True), (0, WORLD, 0, True)],  # rank 1 leaves
    ],
)
def test_ranks_that_may_still_go_on_are_no_circle(
    boards: tuple[Board, Board], posts: list[tuple[int, tuple[int, ...], int, bool]]
) -> None:
    waiting(boards[0], *posts)
    assert boards[1].circle(0, EPOCH) == []


def test_two_groups_of_the_same_ranks_are_two_groups(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    first, second = (Post((0, 1), 0, digest("x"), "x", digest(name), (0, 1)) for name in "ab")
    writer.post(0, EPOCH, first)
    writer.post(1, EPOCH, second)
    assert reader.last(1, EPOCH) == [second] and reader.absent(1, EPOCH) == [0]
    assert reader.circle(1, EPOCH) == [1, 0]


def test_an_all_to_all_awaits_only_those_who_send_to_it(boards: tuple[Board, Board]) -> None:
    board = boards[0]
    board.post(1, EPOCH, Post((0, 1), 0, digest("x"), "x", 0, (), (0, 2), (0, 2)))
    waiting(board, (0, WORLD, 0, True))
    assert boards[1].circle(0, EPOCH) == []  # rank 1 gets nothing from rank 0 and may come
    board.post(1, EPOCH, Post((0, 1), 1, digest("x"), "x", 0, (0, 1), (0, 2), (3, 2)))
    assert boards[1].circle(0, EPOCH) == [0, 1]


def test_an_all_to_all_carries_what_it_sends_and_expects(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    mine = Post(WORLD, 0, digest("x"), "x", 0, (0, 2), (1, 2, 3), (4, 0, 6))
    writer.post(1, EPOCH, mine)
    assert reader.last(1, EPOCH) == [mine]
    huge = Post(WORLD, 1, digest("x"), "x", 0, (), (2**32 + 5, 0, 0), (0, 0, 0))
    writer.post(1, EPOCH, huge)
    assert reader.last(1, EPOCH, 1)[0].sent == (5, 0, 0)
