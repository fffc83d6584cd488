"""A rank's announcement: what can meet it, and what it is known by."""

from __future__ import annotations

import pytest

from tpcheck.comms.post import Post, digest
from tpcheck.evidence import Uneven


def test_a_digest_is_never_zero_and_depends_on_the_text() -> None:
    found = {digest(str(i)) for i in range(2000)}
    assert 0 not in found and len(found) == 2000 and digest("a") == digest("a")
    assert digest("") != 0  # crc32 of nothing is 0


@pytest.mark.parametrize(
    ("sent", "received", "says"),
    [
        ((0, 7), (0, 3), None),
        ((0, 2**32 + 7), (0, 3), None),
        ((0, 8), (0, 3), Uneven(2, 5, sent=8, expected=7)),
        ((0, 7), (0, 0), Uneven(5, 2, sent=3, expected=0)),
        ((), (), None),  # nothing is known of it
    ],
)
def test_what_one_sends_the_other_must_expect(
    sent: tuple[int, ...], received: tuple[int, ...], says: Uneven | None
) -> None:
    theirs = Post((2, 5), 0, digest("x"), "x", 0, (), (3, 0), (7, 0))
    mine = Post((2, 5), 0, digest("x"), "x", 0, (), sent, received)
    assert mine.uneven(2, theirs, 5) == says
    assert theirs.uneven(5, mine, 2) == says  # whoever of the two sees it
    assert mine.meets(2, theirs, 5) == theirs.meets(5, mine, 2) == (says is None)
    other = Post((2, 5), 0, digest("y"), "y", 0, (), sent, received)
    assert not other.meets(2, theirs, 5)  # another collective altogether
    assert other.uneven(2, theirs, 5) is None
