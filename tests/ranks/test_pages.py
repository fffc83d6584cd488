"""The pages for readers, followed on ranks: what they say runs, and prints what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import documents
from tests.documents.following import followed


@pytest.mark.parametrize("page", documents.followed_in("ranks"))
def test_a_page_runs_as_it_stands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert followed(documents.pages()[page], tmp_path, monkeypatch) == []
