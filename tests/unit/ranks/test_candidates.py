"""What a rank can't unpickle is a line, whatever it raises."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import cloudpickle
import pytest

from tpcheck.protocol.messages import Teach
from tpcheck.ranks.candidates import Candidates


class Raises:
    """Where it is unpickled."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce__(self) -> tuple[object, ...]:
        return _raise, (self.error,)


def _raise(error: type[BaseException]) -> None:
    raise error("deliberate\nand a second line")


@pytest.fixture
def candidates() -> Iterator[Candidates]:
    before = list(sys.meta_path)
    yield Candidates()
    sys.meta_path[:] = before


@pytest.mark.parametrize("error", [ValueError, SystemExit, BaseException])
def test_what_can_not_be_unpickled_is_a_line(
    candidates: Candidates, error: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    given = Teach("key", cloudpickle.dumps(Raises(error)), list(sys.path), {}, (os.__name__,))
    assert candidates.learn(given) == f"{error.__name__}: deliberate and a second line"
    assert "deliberate" in capsys.readouterr().err
