"""The pages about frameworks and what was found in them: their models take seconds to load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import documents
from tests.documents.following import followed


@pytest.mark.parametrize("page", documents.followed_in("catalogue"))
def test_a_page_runs_as_it_stands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert followed(documents.pages()[page], tmp_path, monkeypatch) == []
