"""Few names are shown in full, many as patterns."""

from __future__ import annotations

import pytest

from tpcheck.report.names import brief


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a"], "a"),
        (["l.0.a", "l.1.a", "l.0.b"], "l.0.a, l.1.a, l.0.b"),
        (["l.0.a", "l.1.a", "l.0.b", "l.2.a"], "l.*.a (0, 1, 2), l.0.b"),
        ([f"l.{i}.a" for i in range(4)], "l.*.a (4 of them)"),
        (["l.0.e.0", "l.0.e.1", "l.1.e.0", "b"], "l.*.e.* (0.0, 0.1, 1.0), b"),
        (list("abcdefghij"), "a, b, c, d, e, f, g, h, and 2 more"),
    ],
)
def test_names_are_shortened(names: list[str], words: str) -> None:
    assert brief(names) == words
