"""The faults of one engine: a worker does them; this outlives it, and notes how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests import ROOT
from tests.catalogue.torture.judge import Row
from tests.catalogue.torture.records import Records
from tests.catalogue.torture.rounds import Round

#: Seconds without a row after which a worker is said to hang: a round that hangs takes a minute.
PATIENCE = 300.0
LOOK = 1.0


def left_of(planned: Sequence[Round], rows: Sequence[Row]) -> list[Round]:
    """The rounds that are not done."""
    done = {(row.number, row.label) for row in rows}
    return [one for one in planned if (one.number, one.label) not in done]


def run(
    planned: Sequence[Round],
    records: Records,
    worker: Callable[[], list[str]],
    told: Callable[[Row], None],
) -> None:
    """Starts workers until every round is done.

    Args:
        worker: the words of its command.
        told: is given each row as it comes.
    """
    shown = len(records.rows())
    while todo := left_of(planned, records.rows()):
        with tempfile.TemporaryDirectory(prefix="torture-") as folder:
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORTURE_FOLDER": folder}
            log = Path(folder) / "log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, *worker()], env=environment, stdout=output, stderr=output
                )
                shown = _watch(process, records, shown, told)
            if process.returncode:
                said = log.read_text(errors="replace")[-2000:]
                records.add(_died(todo, records, process.returncode, said))


def _watch(
    process: subprocess.Popen[bytes],
    records: Records,
    shown: int,
    told: Callable[[Row], None],
) -> int:
    """Waits for a worker while rows come; returns how many there are."""
    size, since = records.size(), time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(LOOK)
            if records.size() != size:
                size, since = records.size(), time.monotonic()
                rows = records.rows()
                for row in rows[shown:]:
                    told(row)
                shown = len(rows)
            elif time.monotonic() > since + PATIENCE:
                process.kill()
    finally:
        process.terminate()
        process.wait()
    return shown


def _died(todo: Sequence[Round], records: Records, status: int, said: str) -> Row:
    """The row of the round in which a driver died, or was killed since it hung."""
    label = records.begun()
    one = next((one for one in todo if one.label == label), todo[0])
    what = f"the driver ended with {status} in {label!r}: {said}"
    return Row(one.engine, one.number, one.kind, one.label, exceptions=[what])
