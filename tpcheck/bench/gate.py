"""Cases per second of a whole `tpcheck verify`, the start included: what a gate in CI takes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tpcheck.errors import InvalidArgument

#: What the gate runs where nothing else is named.
PROPERTIES = "properties"


@dataclass(frozen=True)
class Gate:
    """One run of the gate.

    Args:
        target: the files that it ran.
        cases, checks: how many.
        seconds: by the clock on the wall, from start to end.
        cpu: seconds of processors, of its processes as far as each was waited for.
    """

    target: str
    checks: int
    cases: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Cases per second."""
        return self.cases / self.seconds


def run(target: str = PROPERTIES, *, examples: int | None = None) -> Gate | None:
    """Runs the gate in processes of its own; None where there are no `properties`.

    Raises:
        InvalidArgument: it does not PASS: what it measures would not be a gate's.
    """
    if target == PROPERTIES and not Path(target).exists():
        return None
    with tempfile.TemporaryDirectory(prefix="tpcheck-bench-") as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "tpcheck", "verify", target, "--json", str(report)]
        command += ["--corpus", str(Path(folder) / "corpus")]
        command += [] if examples is None else ["--examples", str(examples)]
        before, began = _cpu(), time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds, cpu = time.perf_counter() - began, _cpu() - before
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise InvalidArgument(
                f"the gate can't be measured: tpcheck verify {target} ends with {done.returncode}: "
                f"{' '.join(said)}"
            )
        checks = json.loads(report.read_text())["checks"]
    return Gate(target, len(checks), sum(one["examples"] for one in checks), seconds, cpu)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
