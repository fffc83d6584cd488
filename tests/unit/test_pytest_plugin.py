"""The plugin, without a session of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tpcheck import pytest_plugin
from tpcheck.process import lineage


@pytest.mark.parametrize("is_worker", [True, False])
def test_a_worker_of_xdist_ends_with_the_session_from_its_start(
    is_worker: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it imports may take seconds, before any fixture of ours is asked for."""
    asked: list[bool] = []
    monkeypatch.setattr(lineage, "die_with", lambda _: asked.append(True))
    config: Any = SimpleNamespace(option=None, addinivalue_line=lambda *_: None)
    if is_worker:
        config.workerinput = {}
    pytest_plugin.pytest_configure(config)
    assert asked == [True] * is_worker
