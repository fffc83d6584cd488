"""How long ranks have stood still: what they compute, and what they wait for a processor, is not
counted, so that a busy machine hears from as many of them as an idle one."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tpcheck.engines.hosts import Host
from tpcheck.process.delays import Delay

#: Seconds of computing, at most, that are left out. Less would give up ranks of large cases before
#: they come to where they wait; more is waited for where one computes for ever.
MOST = 5.0


class Standstill:
    """That of hosts, from when this is made. Where the system does not tell what they compute, all
    time counts."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._begun = time.monotonic()
        self._busy = [
            (Delay(process=host.pid), Delay(process=host.pid, running=True)) for host in hosts
        ]

    def seconds(self) -> float:
        """While the one that was busy longest did nothing."""
        busy = max((_busy(*of_host) for of_host in self._busy), default=0.0)
        return time.monotonic() - self._begun - busy


def _busy(waits: Delay, waits_or_runs: Delay) -> float:
    """Seconds of a host that are left out: all for which it waited for a processor, and up to
    `MOST` for which it computed."""
    waited = waits.seconds()
    return waited + min(MOST, max(0.0, waits_or_runs.seconds() - waited))
