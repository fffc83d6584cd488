"""A hunt of `fuzz` that is interrupted again and again, at drawn moments, and goes on each time."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from tests.catalogue.torture import commands
from tests.catalogue.torture.deaths import MARK, end, gone
from tests.catalogue.torture.judge import Row, troubles
from tests.catalogue.torture.records import Records

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
#: Seconds in which the moment of an interrupt is drawn: findings arrive from the third on.
FROM, TO = 1.0, 14.0
#: Wrong kernels, each wrong from another size on, so that they are found one after the other.
WRONG, RIGHT = 24, 12

_HEAD = '''"""Kernels, some of them wrong in a way of their own."""
import torch
from torch import Tensor

import tpcheck
from tpcheck import Argument

ROWS = {"x": Argument("rows", "width")}


def twice(x: Tensor) -> Tensor:
    return x + x

'''
_WRONG = """
def wrong_{n}(x: Tensor) -> Tensor:
    far = x[..., {n} * 3 :] * (3 if x.shape[-1] % {step} == 0 and x.dtype == torch.{dtype} else 2)
    return torch.cat([x[..., : {n} * 3] * 2, far], -1)


check_{n:03} = tpcheck.kernel_check(wrong_{n}, reference=twice, arguments=ROWS)
"""
_RIGHT = """
right_{n:03} = tpcheck.kernel_check(lambda x: x * 2, reference=twice, arguments=ROWS)
"""


def main(count: int, seed: int, records: Records) -> bool:
    """Whether after every interrupt the next run had all that was found, and at the end nothing was
    lost and nothing right was called wrong."""
    chance = random.Random(f"hunts {seed}")
    done = {row.label for row in records.rows()}
    if len(done) > count:
        rows = records.rows()
    else:
        records.file.write_text("")  # one hunt from its first run on
        rows = _hunted(count, chance, records)
    wrong = troubles(rows)
    found = rows[-1].driver.get("found", 0) if rows else 0
    print(f"\n{len(rows) - 1} interrupts of one hunt, {found} findings at its end:")
    print(*(wrong or ["nothing lost, nothing wrong"]), sep="\n")
    return not wrong


def _hunted(count: int, chance: random.Random, records: Records) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        folder = Path(name)
        (folder / "kernels.py").write_text(_file())
        told: set[str] = set()
        for number in range(count):
            which = SIGNALS[number % len(SIGNALS)]
            group, moment = chance.random() < 0.5, round(chance.uniform(FROM, TO), 2)
            row = _interrupted(number, which, group, moment, folder, told)
            records.add(row)
            print(f"hunt {number:3} {row.label}: {row.driver}", flush=True)
        records.add(_last(count, folder, told))
    return records.rows()


def _file() -> str:
    """The kernels."""
    dtypes, steps = ("float32", "float64", "bfloat16"), (1, 2, 3, 5)
    wrong = (
        _WRONG.format(n=n, step=steps[n % len(steps)], dtype=dtypes[n % len(dtypes)])
        for n in range(WRONG)
    )
    return _HEAD + "".join(wrong) + "".join(_RIGHT.format(n=n) for n in range(RIGHT))


def _command(*more: str) -> list[str]:
    return commands.tpcheck("fuzz", "kernels.py", "--json", "report.json", *more)


def _interrupted(
    number: int, which: int, group: bool, moment: float, folder: Path, told: set[str]
) -> Row:
    """One run until it is interrupted, and what it had found is there after it.

    Args:
        told: the checks that were printed as failing until now; those of this run are added.
    """
    label = f"{number} {signal.Signals(which).name} {'group' if group else 'driver'} {moment:.2f}"
    row = Row("gloo", number, "hunt", label)
    mark = uuid.uuid4().hex
    (folder / "report.json").unlink(missing_ok=True)
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            _command(),
            cwd=folder,
            env=commands.environment(**{MARK: mark}),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        time.sleep(moment)
        over = process.poll()
        begun = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(process.pid, which)
        left = gone(mark)
        row.seconds = round(time.monotonic() - begun, 2)
        row.processes = list(left.values())
        end(left)
    status, said = process.wait(), (folder / "out").read_text(errors="replace")
    told |= set(re.findall(r"^FAIL {4}(\w+)", said, re.MULTILINE))
    kept = _kept(folder)
    row.driver = {"exit": status, "told": len(told), "kept": len(kept)}
    if over is not None:
        row.exceptions.append(f"it ended by itself: exit {over}: {said[-600:]}")
    if lost := told - kept:
        row.exceptions.append(f"told, not kept: {', '.join(sorted(lost))}")
    if which != signal.SIGKILL and status not in (128 + which, -which):
        row.exceptions.append(f"exit {status}, not {128 + which}: {said[-600:]}")
    if "Traceback" in said:
        row.exceptions.append(f"a traceback: {said[-1500:]}")
    return row


def _last(count: int, folder: Path, told: set[str]) -> Row:
    """One more run, to its end: what it knows, and what it began with."""
    row = Row("gloo", count, "hunt", f"{count} to its end")
    command = _command("--turns", "40")
    ended = subprocess.run(
        command, cwd=folder, env=commands.environment(), capture_output=True, text=True, check=False
    )
    report = json.loads((folder / "report.json").read_text())
    found = {finding["title"] for finding in report["findings"]}
    row.driver = {"exit": ended.returncode, "found": len(found), "cases": report["cases"]}
    if ended.returncode != 1:
        row.exceptions.append(f"exit {ended.returncode}: {ended.stderr[-600:]}")
    if lost := told - found:
        row.exceptions.append(f"told, and lost: {', '.join(sorted(lost))}")
    if false := {name for name in found if name.startswith("right")}:
        row.exceptions.append(f"right, and called wrong: {', '.join(sorted(false))}")
    if not report["cases_of_this_run"] < report["cases"]:
        row.exceptions.append("it began anew")
    row.files = [str(path) for path in folder.rglob("*.tmp")]
    return row


def _kept(folder: Path) -> set[str]:
    """The checks of the cases that are in the corpus."""
    saved = (folder / ".tpcheck" / "corpus").glob("*.json")
    return {json.loads(file.read_text())["check"] for file in saved}
