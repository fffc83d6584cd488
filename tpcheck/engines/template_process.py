"""The template for candidates as the driver sees it: what their ranks are forked from."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import replace
from typing import Any

import cloudpickle

from tpcheck.engines.forks import START_LIMIT, Awaited, Forks
from tpcheck.engines.hosts import Host, opened, readable
from tpcheck.engines.logs import Log
from tpcheck.engines.zygote_process import ZygoteProcess
from tpcheck.errors import EngineUnavailable
from tpcheck.protocol import ends
from tpcheck.protocol.messages import Teach

#: Seconds for the ranks to import a candidate, which may import a framework for the first time.
PARTS_LIMIT = 180.0


class TemplateProcess(Forks):
    """Has a template (`ranks/template.py`) import what a candidate imports; does not wait for it.

    Args:
        of: its name, for the zygote.

    Raises:
        EngineUnavailable: the zygote is gone.
        OSError: there is no memory for what it is told.
    """

    def __init__(self, zygote: ZygoteProcess, candidate: Teach, of: str) -> None:
        mine, theirs = ends.pair()
        super().__init__(zygote.engine, mine)
        self.imports, self._zygote, self._of = candidate.imports, zygote, of
        reads, writes = os.pipe()
        self._log = Log(reads)
        self.pid: int | None = None  # once it is known
        self._process: int | None = None
        self._fit: bool | None = None
        try:
            memory = _written(cloudpickle.dumps(replace(candidate, blob=b"")))
            request = {"template": zygote.engine, "of": of}
            try:
                self._number = zygote.request(request, theirs.fileno(), writes, memory)
            finally:
                os.close(memory)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            os.close(writes)

    @property
    def alive(self) -> bool:
        ended = self._process is not None and bool(readable([self._process], 0.0))
        return not self._gone and not ended

    def fit(self) -> bool:
        """Waits until all is imported; whether ranks can be forked from here."""
        if self._fit is None:
            self._fit = self._comes_up()
        return self._fit and self.alive

    def host(self, awaited: Awaited, deadline: float) -> Host:
        """As `Forks.host`; its log begins with what was printed by the imports."""
        host = super().host(awaited, deadline)
        host.log.follow(self._log)
        return host

    def close(self) -> None:
        """Ends the process and what was forked from it."""
        with contextlib.suppress(EngineUnavailable):
            self._zygote.end(self._of)
        self._control.close()
        self._log.close()
        self._gone = True
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def wake(self) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._process, signal.SIGCONT)

    def said(self) -> str:
        return self._log.tail(300)

    def _comes_up(self) -> bool:
        answer = self._zygote.answer(self._number, time.monotonic() + START_LIMIT)
        if answer is None or "pid" not in answer:
            return False
        self.pid = int(answer["pid"])
        self._process, _ = opened(self.pid)
        deadline = time.monotonic() + PARTS_LIMIT
        while self._fit is None and self.alive and (left := deadline - time.monotonic()) > 0:
            news = [self._control.fileno(), self._process, self._log.descriptor]
            readable([one for one in news if one is not None], left)
            self._log.read()  # one that prints may wait for that
            self._read(0.0)
        self._log.read()
        return self._fit is True

    def _take(self, told: dict[str, Any]) -> None:
        if "unfit" in told:
            self._fit = not told["unfit"]
        else:
            super()._take(told)


def _written(data: bytes) -> int:
    """The descriptor of a file in memory that has the data."""
    descriptor = os.memfd_create("tpcheck-candidate")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
