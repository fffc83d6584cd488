"""Numbers of things: one of them is `1 case`, in every report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tpcheck.errors import counted

REPORT = ROOT / "tpcheck" / "report"
#: What is put into a text as it is, in Python or in a template: a number with a format of its own
#: is a factor or a size.
PUT_IN = r"(?:\}\}|\{[^{}:]+\})(?: (?:more|known|listed|saved|drawn|correct|further|other))? "


def sources() -> Iterator[Path]:
    for suffix in ("py", "html"):
        yield from REPORT.rglob(f"*.{suffix}")


def nouns(texts: list[str]) -> set[str]:
    """What is counted anywhere, in the plural."""
    called = r"counted\(.*?[\"']([a-z ]+)[\"'](?:, ?[\"']([a-z]+)[\"'])?"
    found = [match.groups() for text in texts for match in re.finditer(called, text)]
    return {plural or f"{noun.split()[-1]}s" for noun, plural in found}


def by_hand(text: str, plurals: set[str]) -> list[str]:
    """Plurals that are written after a number, whatever that is."""
    return re.findall(f"{PUT_IN}(?:{'|'.join(sorted(plurals))})\\b(?! per)", text)


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 cases"), (1, "1 case"), (2, "2 cases"), (1.5, "1.5 cases")]
)
def test_one_is_not_several(number: float, said: str) -> None:
    assert counted(number, "case") == said


def test_a_plural_may_be_given_and_a_number_may_stand_in_a_column() -> None:
    assert counted(3, "match", "matches") == "3 matches" and counted(1, "match", "x") == "1 match"
    assert counted(7, "case", width=4) == "   7 cases"


def test_no_report_writes_a_plural_after_a_number_by_hand() -> None:
    texts = {file: file.read_text() for file in sources()}
    plurals = nouns([*texts.values()])
    assert {"cases", "checks", "findings", "elements", "mismatches"} <= plurals
    found = {file.name: own for file, text in texts.items() if (own := by_hand(text, plurals))}
    assert found == {}


@pytest.mark.parametrize(
    "text",
    ['f"{len(results)} checks, "', "<p>{{ report.cases }} cases</p>", 'f"{n} known findings"'],
)
def test_the_twin_one_that_is_written_by_hand_is_seen(text: str) -> None:
    assert by_hand(text, {"checks", "cases", "findings"})
