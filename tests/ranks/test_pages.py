"""The pages for readers, followed on ranks: what they say runs, and prints what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import documents
from tests.documents.blocks import blocks
from tests.documents.following import followed

#: Their commands take a quarter of a minute and more, and run in the sweep; what Python's blocks
#: say is in each run, and that every command is one is `tests/unit/pages`' to see.
LONG = {
    *("docs/cli.md", "docs/checks.md", "docs/specs.md", "docs/training.md", "docs/fuzz.md"),
    *("docs/init.md", "docs/kernels.md", "docs/plans.md", "README.md"),
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.sweep if page in LONG else ())
        for page in documents.followed_in("ranks")
    ],
)
def test_a_page_runs_as_it_stands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert followed(documents.pages()[page], tmp_path, monkeypatch) == []


def has_python(page: str) -> bool:
    """Whether a block of it runs as it stands, beside those that are files."""
    text = documents.pages()[page].read_text()
    return any(block.language == "python" and not block.file for block in blocks(text))


@pytest.mark.parametrize("page", [page for page in sorted(LONG) if has_python(page)])
def test_pythons_blocks_run_as_they_stand(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert followed(documents.pages()[page], tmp_path, monkeypatch, lines=False) == []
