"""Every code is described: in a line here, and in an entry of the page."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests import ROOT
from tpcheck.report.diagnoses.codes import MEANING
from tpcheck.vocabulary import Code

PAGE = ROOT / "docs" / "diagnoses.md"


def entries(page: str) -> list[str]:
    """The codes that have a heading, or a row of a table, of their own."""
    return re.findall(r"^(?:### |\| )`([a-z-]+)`(?: \||$)", page, re.M)


def missing(page: str, codes: Iterable[str]) -> set[str]:
    return set(codes) ^ set(entries(page))


def test_every_code_has_a_line() -> None:
    assert set(MEANING) == set(Code) and all(MEANING.values())


def test_every_code_has_one_entry_on_the_page_and_every_entry_a_code() -> None:
    page = PAGE.read_text()
    assert missing(page, Code) == set()
    assert len(entries(page)) == len(set(entries(page)))


def test_the_twin_an_entry_too_few_or_too_many_is_seen() -> None:
    page = PAGE.read_text()
    assert missing(page.replace("### `deadlock`", "### deadlock"), Code) == {"deadlock"}
    assert missing(page + "\n| `gone-wrong` | why |\n", Code) == {"gone-wrong"}
