"""A crew that is ended: nobody of it is left."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tpcheck.workers import crew
from tpcheck.workers.crew import Crew


class Alive:
    """A worker during whose end somebody is impatient."""

    def __init__(self, *_: Any) -> None:
        self.process, self.ended = self, False

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        self.ended = True


def test_another_interrupt_leaves_no_worker_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "Worker", Alive)
    made: Any = Crew(3, lambda: None, lambda *_: None)  # type: ignore[arg-type, return-value]
    workers: list[Any] = list(made.workers)
    with pytest.raises(KeyboardInterrupt):
        made.kill()
    assert all(worker.ended for worker in workers) and not made.workers
