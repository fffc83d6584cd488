"""What is the test runner's is not the tests'."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def without_the_runners_threads(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that `threading` does not know are not looked for: pytest-xdist's come and go."""
    if "threading_does_not_know" not in request.node.name:
        monkeypatch.setattr(sys, "_current_frames", dict)
