"""Ranks that have loaded Megatron-core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tpcheck.engines.engine import Engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Four, each a process."""
    with Engine("gloo", 4, preload=["megatron.core.models.gpt.gpt_model"]) as ready:
        yield ready
