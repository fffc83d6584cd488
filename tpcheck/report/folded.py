"""Lines of a page, of 100 columns at most."""

from __future__ import annotations

import textwrap

#: As wide as code is, here as elsewhere: two pages fit side by side.
COLUMNS = 100


def fold(text: str, *, by: int = 4) -> list[str]:
    """A line as several; what goes on is indented by so much more. A word that is longer (a path)
    stays whole."""
    indent = len(text) - len(text.lstrip(" "))
    return textwrap.wrap(
        text,
        COLUMNS,
        subsequent_indent=" " * (indent + by),
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    ) or [text]


def cut(text: str, at: int) -> str:
    """What is said in full elsewhere, from this column on."""
    most = COLUMNS - at
    return text if len(text) <= most else f"{text[: most - 1]}…"
