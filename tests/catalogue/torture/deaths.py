"""Deaths of the driver: by which signal, to whom, of which command, at drawn moments."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT
from tests.catalogue.torture import commands, footprint
from tests.catalogue.torture.judge import Row, troubles
from tests.catalogue.torture.records import Records
from tpcheck.cli.early import INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
COMMANDS = ("verify", "mutants", "pytest")
#: The variable by which processes of one death are known.
MARK = "TORTURE_DEATH"
#: Seconds after which no process may be left.
GONE = 5.0
#: Seconds in which the moment of a death is drawn. The first second is Python's own start.
FROM, TO = 1.0, 12.0
#: Checks of a run: enough to outlast any moment.
CHECKS = 200
#: Whether this process has a `/dev/shm` of its own.
ALONE = "TORTURE_ALONE"


@dataclass(frozen=True)
class Death:
    """One death.

    Args:
        group: whether the whole process group gets the signal.
        moment: seconds after the start.
    """

    number: int
    command: str
    signal: int
    group: bool
    moment: float

    @property
    def label(self) -> str:
        to = "group" if self.group else "driver"
        return f"{self.command} {signal.Signals(self.signal).name} {to} {self.moment:.2f}"


def drawn(count: int, seed: int) -> list[Death]:
    """Every command with every signal to driver and group, again and again."""
    chance = random.Random(f"deaths {seed}")
    every = [(c, s, g) for c in COMMANDS for s in SIGNALS for g in (False, True)]
    chance.shuffle(every)
    return [
        Death(i, *every[i % len(every)], moment=round(chance.uniform(FROM, TO), 2))
        for i in range(count)
    ]


def main(count: int, seed: int, records: Records) -> bool:
    """Whether every death left nothing, and lost nothing that was printed."""
    if ALONE not in os.environ and commands.can_mount():
        words = ["deaths", "--deaths", str(count), "--seed", str(seed)]
        words += ["--state", str(records.file.parent)]
        command = commands.python("-m", "tests.catalogue.torture", *words)
        environment = commands.environment(**{ALONE: "1"})
        alone = commands.with_shared_memory("2g", command)
        return subprocess.run(alone, env=environment, cwd=ROOT, check=False).returncode == 0
    done = {row.label for row in records.rows()}
    for death in drawn(count, seed):
        if death.label not in done:
            row = died(death)
            records.add(row)
            print(f"death {death.number:3} {death.label}: {row.driver}", flush=True)
    rows = records.rows()
    wrong = troubles(rows)
    print(
        f"\n{len(rows)} deaths of the driver:", *(wrong or ["nothing left, nothing lost"]), sep="\n"
    )
    return not wrong


def died(death: Death) -> Row:
    """What a death came to."""
    row = Row("gloo", death.number, f"death of {death.command}", death.label)
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        folder = Path(name)
        temporary = folder / "tmp"
        temporary.mkdir()
        environment = commands.environment(**{MARK: mark, "TMPDIR": str(temporary)})
        with (folder / "out").open("wb") as out:
            process = subprocess.Popen(
                _command(death, folder),
                cwd=folder,
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            time.sleep(death.moment)
            over = process.poll() is not None
            begun = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                send = os.killpg if death.group else os.kill
                send(process.pid, death.signal)
            left = gone(mark)
            seconds = time.monotonic() - begun
            if process.poll() is None:
                process.kill()
            status = process.wait()
        said = (folder / "out").read_text(errors="replace")
        kept = _kept(folder)
        row.processes = list(left.values())
        row.exceptions = list(_wrong(death, status, said, folder, kept)) if not over else ["over"]
        end(left)
        row.files = _after_next_start(folder, environment)
        row.seconds = round(seconds, 2)
        row.driver = {"exit": status, "found": len(_found(said)), "kept": len(kept)}
    return row


def _command(death: Death, folder: Path) -> list[str]:
    if death.command == "mutants":
        words = ["mutants", str(ROOT / "fixtures" / "mutants"), "--examples", "3", "--jobs", "2"]
        return commands.tpcheck(*words, "--json", "report.json")
    file = str(commands.mixed(folder, CHECKS))
    if death.command == "verify":
        words = ["verify", file, "--examples", "3", "--tp", "2", "--json", "report.json"]
        return commands.tpcheck(*words, "--junit", "report.xml", "--corpus", "corpus")
    return commands.python("-m", "pytest", "-n", "2", "-v", "-p", "no:cacheprovider", file)


def gone(mark: str) -> dict[int, str]:
    """The processes of a death that are left after some seconds."""
    until = time.monotonic() + GONE
    wanted = f"{MARK}={mark}".encode()
    while (left := footprint.alive(footprint.with_variable(wanted))) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def end(left: dict[int, str]) -> None:
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _found(said: str) -> set[str]:
    """The checks that were printed as failing."""
    return set(re.findall(r"^FAIL +(check_\d+)", said, re.MULTILINE)) | {
        f"check_{number}" for number in re.findall(r"FAILED.*::test_(\d+)", said)
    }


def _kept(folder: Path) -> set[str]:
    """The checks of the cases that are in the corpus."""
    saved = [*(folder / "corpus").glob("*.json"), *(folder / ".tpcheck/corpus").glob("*.json")]
    return {json.loads(file.read_text())["check"] for file in saved}


def _wrong(death: Death, status: int, said: str, folder: Path, kept: set[str]) -> list[str]:
    """What was lost, and an exit code that is not the signal's."""
    wrong = []
    if lost := _found(said) - kept:
        wrong.append(f"found, not kept: {', '.join(sorted(lost))}")
    if death.signal == signal.SIGKILL:
        return wrong
    # one that died before it could hear: a shell says the same code of both
    silent = said.strip() in ("", INTERRUPTED)
    codes = {128 + death.signal} | ({-death.signal} if silent else set())
    if death.command == "pytest":
        codes |= {2, -signal.SIGINT} if death.signal == signal.SIGINT else set()
    if status not in codes:
        wrong.append(f"exit {status}, not {sorted(codes)}: {said[-600:]}")
    elif silent or death.command == "pytest":
        pass  # nothing was found yet, or what was is in the corpus
    elif not (folder / "report.json").exists():
        wrong.append(f"no report: {said[-600:]}")
    elif death.command == "verify":
        checks = json.loads((folder / "report.json").read_text())["checks"]
        told = {check["name"] for check in checks if check["verdict"] == "FAIL"}
        if lost := _found(said) - told:
            wrong.append(f"found, not in the report: {', '.join(sorted(lost))}")
    if "Traceback" in said and death.command != "pytest":
        wrong.append(f"a traceback: {said[max(0, said.index('Traceback') - 200) :][:2000]}")
    return wrong


#: What a run begins with: the folder of its own, and the corpus of the one before.
_START = """
from pathlib import Path
from tpcheck.engines.folder import RunFolder
from tpcheck.search.corpus import Corpus
RunFolder().remove()
for folder in (None, Path("corpus")):
    Corpus(folder).sweep()
"""


def _after_next_start(folder: Path, environment: dict[str, str]) -> list[str]:
    """The files that are there after the next start."""
    subprocess.run(commands.python("-c", _START), env=environment, cwd=folder, check=True)
    places = [folder / "tmp", *([Path("/dev/shm")] if ALONE in os.environ else [])]
    left = [path for place in places for path in place.glob("tpcheck-*")]
    # a save that was cut off, too
    left += [path for path in folder.rglob("*.tmp")]
    return [str(path) for path in left]


def window(records: Records) -> None:
    """Prints how long a case that was found is not yet in the corpus."""
    from tests.catalogue.torture import worker
    from tests.catalogue.torture.known import WRONG
    from tpcheck.runner.runner import Runner
    from tpcheck.search.corpus import Corpus

    found: list[float] = []
    times: list[float] = []
    run, save = Runner.run, Corpus.save

    def ran(*args: object, **kwargs: object) -> object:
        result = run(*args, **kwargs)
        if result.mismatches:
            found.append(time.monotonic())
        return result

    def saved(*args: object) -> object:
        path = save(*args)
        if found:
            times.append(time.monotonic() - found[0])
        found.clear()
        return path

    Runner.run, Corpus.save = ran, saved
    with tempfile.TemporaryDirectory() as name, worker.open_session("gloo", 2) as session:
        session.require_trust()
        found.clear()
        for check in WRONG.values():
            corpus = Corpus(Path(name) / check.title)
            options = worker.Options(examples=2, degrees=(2,), corpus=corpus)
            worker.verify_all([check], session, options)
            found.clear()
    Runner.run, Corpus.save = run, save
    print(f"found to kept: {sorted(round(t, 4) for t in times)} seconds", file=sys.stderr)
