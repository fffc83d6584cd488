"""A crew that is ended: nobody of it is left."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from tpcheck.workers import crew
from tpcheck.workers.crew import Crew


class Alive:
    """A worker during whose end somebody is impatient."""

    def __init__(self, *_: Any) -> None:
        self.process, self.ended = self, False

    def kill(self) -> None:
        thread = threading.Thread(target=_hears)  # as any may that does not block it
        thread.start()
        thread.join()
        self.ended = True


def _hears() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


def test_another_interrupt_leaves_no_worker_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "Worker", Alive)
    made: Any = Crew(3, lambda: None, lambda *_: None)  # type: ignore[arg-type, return-value]
    workers: list[Any] = list(made.workers)
    with pytest.raises(KeyboardInterrupt):
        made.kill()
    assert all(worker.ended for worker in workers) and not made.workers
