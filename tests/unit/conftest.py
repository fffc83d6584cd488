"""Pure tests: none of them starts ranks."""

from __future__ import annotations

import pytest

from tpcheck.engines.zygote_process import INSIDE


@pytest.fixture(autouse=True)
def no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine refuses to start where this is set."""
    monkeypatch.setenv(INSIDE, "1")
