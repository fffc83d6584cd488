"""The pure tests start no ranks: an engine that one of them starts is refused."""

from __future__ import annotations

import pytest

from tpcheck import Engine
from tpcheck.errors import EngineUnavailable


def test_an_engine_can_not_be_started_here() -> None:
    with pytest.raises(EngineUnavailable, match="inside a rank"):
        Engine("threads", 2)
