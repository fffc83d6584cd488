"""A host's log: its end is kept, whatever it prints."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tpcheck.engines.logs import KEPT, Log


@pytest.fixture
def pipe() -> Iterator[tuple[Log, int]]:
    """A log, and where to write to it."""
    reads, writes = os.pipe()
    log = Log(reads)
    yield log, writes
    log.close()


def test_what_was_printed_since_is_told_from_what_was_there(pipe: tuple[Log, int]) -> None:
    log, writes = pipe
    os.write(writes, b"before\n")
    log.read()
    seen = log.written
    assert log.since(seen) == ""
    os.write(writes, "after – \n".encode())
    log.read()
    assert (log.since(seen), log.tail(100)) == ("after – \n", "before\nafter –")
    os.close(writes)


def test_of_a_long_log_the_end_is_kept(pipe: tuple[Log, int]) -> None:
    log, writes = pipe
    for _ in range(2 * KEPT // 4096):
        os.write(writes, b"x" * 4096)
        log.read()
    os.write(writes, b"the end")
    log.read()
    assert log.written == 2 * KEPT + 7
    assert len(log.since(0)) == KEPT and log.tail(9) == "xxthe end"
    os.close(writes)


def test_reading_ends_where_nothing_is_left_and_where_nobody_writes(
    pipe: tuple[Log, int],
) -> None:
    log, writes = pipe
    log.read()
    assert log.descriptor is not None
    os.write(writes, b"last words")
    os.close(writes)
    log.read()
    assert log.descriptor is None and log.tail(100) == "last words"


def test_of_what_a_case_printed_stacks_that_were_asked_for_are_left_out(
    pipe: tuple[Log, int],
) -> None:
    log, writes = pipe
    os.write(writes, b"before\n")
    log.read()
    seen = log.written
    os.write(writes, b"its own\n")
    assert log.printed(seen, 100) == "its own\n", "what is in the pipe is taken"
    os.write(writes, b'Thread 0x7f (most recent call first):\n  File "a.py", line 1 in f\n')
    assert log.printed(seen, 100) == "its own\n"
    assert log.printed(seen, 4) == "own\n"
