"""What a terminal would obey is spelled out; all else is shown as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpcheck.report.text import failure, findings, line, page, skipped, title, troubles
from tpcheck.report.visible import name, one_line, visible
from tpcheck.verdict import CheckResult, Verdict

HOSTILE = [
    "\x1b[31m", "\x1b]0;title\x07", "\r", "\x08", "\x9b2J", "\u202e", "\u2066", "\u200b", "\ufeff",
    "\udcff", "\x00", "\u2028", "\x7f", "\x85",
]  # fmt: skip


@pytest.mark.parametrize("said", HOSTILE, ids=ascii)
def test_every_line_of_the_report_spells_it_out(said: str) -> None:
    result = CheckResult(
        f"a{said}b", Verdict.UNKNOWN, "gloo", reason=f"c{said}d", trouble=True, notes=[f"e{said}f"]
    )
    lines = [*findings(result), page(result), line(result), skipped(f"a{said}b", f"c{said}d")]
    assert all(text.replace("\n", "").isprintable() for text in lines)
    assert visible(f"a{said}b") == f"a{said.encode('unicode_escape').decode()}b" == title(result)
    assert said in failure(result) and said in troubles([result])


@pytest.mark.parametrize("text", ["", "[red]x[/red] :key:", "é 漢字 🙂 ›", "a\tb\n\nc"])
def test_what_can_be_shown_is_shown(text: str) -> None:
    assert visible(text) == text


@given(st.text())
def test_whatever_it_is_it_can_be_shown_in_utf_8(text: str) -> None:
    shown = visible(text)
    assert (shown.encode("utf-8") and shown) or not text
    assert all(c.isprintable() or c in "\n\t" for c in shown)
    assert one_line(text).isprintable() and name(text).isprintable()
