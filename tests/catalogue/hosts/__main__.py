"""`python -m tests.catalogue.hosts`: the same cases on threads, on gloo's ranks of one host, and on
those of two hosts that torchrun started; then a host that is cut off in the middle of a run, and a
rank that is killed there. Needs root, which makes the hosts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.catalogue.hosts import net

RIGHT = [f"properties/{name}.py" for name in ("linear", "mlp", "attention", "embedding", "head")]
WRONG = ["tests/catalogue/hosts/wrong.py"]
ENGINES = ("threads", "gloo", "torchrun")
#: What of a check is the same wherever it runs.
SAME = ("name", "verdict", "examples", "dtypes", "tp_degrees", "judged")
#: Seconds that a case may take; those in which a host that is gone is to be noticed besides; and
#: those that a run has.
LIMIT, NOTICED, LONGEST = 15, 15, 600
#: Seconds until the cable is cut, from the first case on.
CUT_AFTER = 4.0

Report = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="hosts", description=__doc__)
    parser.add_argument("--examples", type=int, default=14, metavar="N", help="cases per check")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    given = parser.parse_args()
    how = ["--examples", str(given.examples), "--seed", str(given.seed)]
    with tempfile.TemporaryDirectory() as place, net.joined():
        folder = Path(place)
        rows = [
            _compared("right", [*RIGHT, *how], folder),
            _compared("wrong", [*WRONG, *how], folder),
            _killed(folder),
            _cut(folder),
        ]
    for good, text in rows:
        print(f"{'PASS' if good else 'FAIL'}  {text}")
    return 0 if all(good for good, _ in rows) else 1


def _run(engine: str, words: Sequence[str], folder: Path) -> Report:
    """What a run of these checks on an engine writes."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "report.json"
    words = ["verify", *words, "--tp", "2,4", "--engine", engine, "--json", str(out)]
    words += ["--time-limit", str(LIMIT), "--corpus", str(folder / "corpus")]
    if engine == "torchrun":
        for process in net.launched(words, folder):
            process.wait(LONGEST)
    else:
        command = [sys.executable, "-m", "tpcheck", *words, "--ranks", "4"]
        subprocess.run(command, cwd=ROOT, check=False, timeout=LONGEST, capture_output=True)
    report: Report = json.loads(out.read_text())
    return report


def _compared(what: str, words: Sequence[str], folder: Path) -> tuple[bool, str]:
    """The same checks on each engine."""
    reports = {engine: _run(engine, words, folder / what / engine) for engine in ENGINES}
    of = {engine: [_said(check) for check in reports[engine]["checks"]] for engine in ENGINES}
    alike = sum(one == other == another for one, other, another in zip(*of.values(), strict=True))
    cases = sum(check["examples"] for check in reports["gloo"]["checks"])
    checks = len(of["gloo"])
    verdict = reports["gloo"]["verdict"]
    text = f"{what}: {alike} of {checks} checks alike on {', '.join(ENGINES)}: {cases} cases"
    return alike == checks > 0, f"{text}, {verdict}"


def _said(check: Report) -> tuple[Any, ...]:
    """Of a check what is to be the same: of a counterexample its case, cause and file."""
    found = check["counterexample"]
    of_found = found and (found["id"], found["case"], found["diagnosis"]["code"])
    return (*(check[key] for key in SAME), of_found)


def _killed(folder: Path) -> tuple[bool, str]:
    """A rank of the second host is killed in each case: that is the candidate's."""
    words = ["tests/catalogue/hosts/killed.py", "--examples", "3"]
    (check,) = _run("torchrun", words, folder / "killed")["checks"]
    said = check["counterexample"]["diagnosis"]["message"] if check["counterexample"] else ""
    return "rank 3 died: killed by SIGKILL" in said, f"killed: {check['verdict']}, {said}"


def _cut(folder: Path) -> tuple[bool, str]:
    """The second host is cut off in the middle of a run."""
    own = folder / "cut"
    out = own / "report.json"
    words = ["verify", *RIGHT, "--examples", "60", "--engine", "torchrun", "--tp", "2,4"]
    words += ["--time-limit", str(LIMIT), "--json", str(out), "--corpus", str(own / "corpus")]
    first, _ = net.launched(words, own)
    while "PASS" not in (own / "host0.log").read_text():
        time.sleep(0.2)
    time.sleep(CUT_AFTER)
    net.cut()
    begun = time.monotonic()
    while not out.exists():
        time.sleep(0.2)
    seconds = time.monotonic() - begun
    net.kill(net.NAMES[1])
    net.joined_again()
    first.wait(LONGEST)
    report = json.loads(out.read_text())
    reasons = {check["reason"] for check in report["checks"] if check["verdict"] == "UNKNOWN"}
    text = f"cut off: {report['verdict']} after {seconds:.0f} s, {', '.join(sorted(reasons))}"
    told = len(reasons) == 1 and "its machine is cut off" in next(iter(reasons))
    return told and report["verdict"] == "UNKNOWN" and seconds <= LIMIT + NOTICED, text


if __name__ == "__main__":
    sys.exit(main())
