"""A `/dev/shm` of 64 MB, as containers have it, and one of 256 KB."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path

from tests.catalogue.torture import commands
from tests.catalogue.torture.judge import Row, troubles
from tests.catalogue.torture.records import Records

CHECKS = 200


def main(records: Records) -> bool:
    """Whether runs end as they must in little shared memory."""
    if not commands.can_mount():
        print("\n/dev/shm: mount namespaces are not allowed here; not tried")
        return True
    done = {row.label for row in records.rows()}
    for size, count, temporary in (
        ("64m", CHECKS, False),
        ("256k", 20, False),
        ("256k", 20, True),
        ("4k", 20, True),
    ):
        label = f"{size} {count} {'and nothing else' if temporary else ''}".strip()
        if label not in done:
            records.add(_crashed(size, count, temporary, label))
    rows = records.rows()
    wrong = troubles(rows)
    for row in rows:
        print(
            f"/dev/shm of {row.label}: exit {row.driver['exit']}, {row.seconds:.0f} s", flush=True
        )
    print(*(wrong or ["/dev/shm: nothing is wrong"]), sep="\n")
    return not wrong


def _crashed(size: str, count: int, temporary: bool, label: str) -> Row:
    """A run of crashing checks.

    Args:
        temporary: whether the folder for temporary files is there, too.
    """
    row = Row("gloo", 0, "shared-memory", label)
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        folder = Path(name)
        report = folder / "report.json"
        command = commands.tpcheck("verify", str(commands.crashing(folder, count)))
        command += ["--examples", "1", "--tp", "2", "--ranks", "2", "--json", str(report)]
        more = {"TMPDIR": "/dev/shm"} if temporary else {}
        begun = time.monotonic()
        ended = subprocess.run(
            commands.with_shared_memory(size, command),
            env=commands.environment(**more),
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        row.seconds = round(time.monotonic() - begun, 1)
        row.driver = {"exit": ended.returncode}
        said = ended.stdout + ended.stderr
        if temporary:  # no disk at all: a run can't find anything, and says so
            fine = ended.returncode in (2, 3) and "no room" in said and "Traceback" not in said
            row.exceptions = [] if fine else [f"exit {ended.returncode}: {said[-1000:]}"]
            return row
        if ended.returncode == 3 and size != "64m":
            row.exceptions = [] if len(said.strip().splitlines()) == 1 else [said[-1000:]]
            return row
        row.exceptions = list(_missing(ended.returncode, said, report, count))
    return row


def _missing(status: int, said: str, report: Path, count: int) -> list[str]:
    """What a run in which every check crashed does not tell."""
    wrong = [] if status == 1 else [f"exit {status}: {said[-1000:]}"]
    told = said.count("rank-crash")
    if told < count:
        wrong.append(f"{told} of {count} diagnoses were printed")
    checks = json.loads(report.read_text())["checks"] if report.exists() else []
    full = [check for check in checks if check.get("counterexample")]
    if len(full) != count:
        wrong.append(f"{len(full)} of {count} counterexamples are in the JSON")
    return wrong
