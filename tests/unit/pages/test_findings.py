"""The pages of findings: each says what upstream knows, and has a report that could be filed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import pytest

from tests import ROOT
from tests.documents.blocks import Block, blocks

FOLDER = ROOT / "docs" / "findings"
PAGES = sorted(file.name for file in FOLDER.glob("*.md") if file.name != "README.md")
NUMBER = r"\[([\w./-]+)#(\d+)\]\(https://github\.com/\1/(?:issues|pull)/\2\)"
DATED = r"[Aa]s of 20\d\d-\d\d-\d\d\b"
PARTS = ("Title", "Environment", "Reproduction", "Expected", "Actual")


def faults(page: str) -> Iterator[str]:
    """What a page of a finding lacks of the two sections."""
    named = re.search(r"^## Upstream\n\n(.+?)\n\n## Report\n\n(.+)\Z", page, re.M | re.S)
    if named is None:
        yield "no sections Upstream and Report at the end"
        return
    upstream, report = named.groups()
    if not re.search(DATED, upstream):
        yield "not said as of when"
    known = re.search(NUMBER, upstream) is not None
    if not (upstream.startswith("Not found in the tracker of ") or known):
        yield "neither not found nor a number"
    filed = blocks(report)
    if [block.language for block in filed] != ["text"]:
        yield "the report is not one block of text"
        return
    parts = dict(re.findall(r"^(\w+): *(.*?)(?=^\w+:|\Z)", filed[0].text, re.M | re.S))
    yield from (f"no {part}" for part in PARTS if not parts.get(part, "").strip())
    script, printed = reproduced(blocks(page.partition("\n## Upstream\n")[0]))
    for part, own in (("Reproduction", script), ("Actual", printed)):
        if textwrap.dedent(parts.get(part, "")).strip() != own.strip():
            yield f"{part} is not what stands above"


def reproduced(found: list[Block]) -> tuple[str, str]:
    """The script that shows a finding, and what it prints."""
    script = next(block.text for block in found if block.file == "reproduce.py")
    command = "$ python reproduce.py"
    return script, next(block.text for block in found if block.text.startswith(command))


@pytest.mark.parametrize("page", PAGES)
def test_each_says_what_upstream_knows_and_has_a_report(page: str) -> None:
    assert list(faults((FOLDER / page).read_text())) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("## Upstream", "## Others"),
        ("as of 2026-11-26", "lately"),
        ("Not found in the tracker of", "Nothing in"),
        ("Title: ", "Titel: "),
        ("Expected: Each pair is (-1.0, 1.0).", "Expected:"),
        ("    import torch", "    import numpy"),
        ("\n    $ python", "\n    $ python3"),
    ],
)
def test_the_twin_a_page_without_one_is_seen(right: str, wrong: str) -> None:
    page = (FOLDER / "liger-rope-one-position.md").read_text()
    page = page.replace(" The same fault of another library's kernel is [ml-explore", " [ml")
    assert right in page and list(faults(page.replace(right, wrong))) != []
