"""Measures: how long ranks take to start, what an example costs, and what it is spent on.

tpcheck and the bare loop take turns on the same warm ranks. Each case is timed once per lap; the
median over the laps stands for it, so that a busy machine moves the figures little.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from tpcheck.bench import gate, grid, mlp
from tpcheck.bench.gate import Gate
from tpcheck.bench.grid import Cell, Grid
from tpcheck.bench.report import BenchReport, Degree, Start, Suite, Timing
from tpcheck.bench.spans import PARTS, time_line
from tpcheck.bench.where import where
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument, did_you_mean
from tpcheck.runner.runner import Runner

RANKS = 4
DEGREES = (2, 4)
#: The cells that take no time.
QUICK = Grid(sizes=(16, 64), degrees=(2, 4), laps=grid.LEAST)

#: Seconds that one of torch's test classes may take. They spawn ranks for every test; one that
#: takes longer hangs, and its row says so.
SUITE_LIMIT = 300.0

Laps = list[list[float]]  # [lap][case]: seconds


#: What can be measured, in this order.
WHAT = ("start", "examples", "suites", "table", "gate")


def bench(
    what: Sequence[str] = WHAT,
    *,
    table: Grid | None = None,
    repeats: int = 5,
    quick: bool = False,
    target: str = gate.PROPERTIES,
    finished: Callable[[Cell], object] = lambda _: None,
) -> BenchReport:
    """Runs the measurements; a quarter of an hour, most of it the largest cells of the table, or
    two minutes with `quick`.

    Args:
        what: of `WHAT`.
        table: the cells; by default all, with `quick` the small ones.
        repeats: laps over the cases, and starts of the ranks (at most three cold ones).
        quick: fewer cases and laps, and torch's test classes at one degree only.
        target: the files of the gate.
        finished: is told of each cell of the table.

    Raises:
        InvalidArgument: something else is asked for.
    """
    for name in what:
        if name not in WHAT:
            raise InvalidArgument(f"--parts {name!r} is none{did_you_mean(name, WHAT)}")
    count, repeats = (6, min(repeats, 2)) if quick else (12, repeats)
    about = where()
    start = _starts(1 if quick else min(3, repeats)) if "start" in what else None
    degrees: dict[int, Degree] = {}
    if "examples" in what:
        with Engine("gloo", RANKS) as engine:
            degrees = {d: _degree(engine, mlp.cases(d, count), repeats) for d in DEGREES}
    suites = _suites(DEGREES[-1:] if quick else DEGREES) if "suites" in what else []
    cells = grid.measure(table or (QUICK if quick else Grid()), finished) if "table" in what else []
    return BenchReport(about, RANKS, start, degrees, suites, cells, _gate(what, target, quick))


def _gate(what: Sequence[str], target: str, quick: bool) -> Gate | None:
    return gate.run(target, examples=2 if quick else None) if "gate" in what else None


# ---- starting


def _starts(repeats: int) -> Start:
    """Seconds until four ranks are ready: from nothing, and again after a `kill()`."""
    imports, cold, again = [], [], []
    for _ in range(repeats):
        # in turns, so that a busy machine slows both
        imports.append(_import_torch())
        began = time.perf_counter()
        with Engine("gloo", RANKS) as engine:
            engine.start()
            cold.append(time.perf_counter() - began)
            for _ in range(2):
                engine.kill()
                began = time.perf_counter()
                engine.start()
                again.append(time.perf_counter() - began)
    return Start(*map(statistics.median, (cold, again, imports)))


def _import_torch() -> float:
    """Seconds that one process takes to load torch and nothing else: the floor of a cold start."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - began


# ---- examples


def _degree(engine: Engine, work: Sequence[Case], repeats: int) -> Degree:
    runner = Runner(mlp.check, engine)
    runner.renew()  # as `verify` has it for each check
    grid.tpcheck(runner, work[:3])  # warm-up: candidate taught, groups made
    grid.bare(engine, work[:3])
    laps: Laps = []
    bare: Laps = []
    lines: list[list[dict[str, float]]] = []
    for _ in range(repeats):
        laps.append(grid.tpcheck(runner, work))
        bare.append(grid.bare(engine, work))
        lines.append([time_line(runner, case) for case in work])
    spent = {part: _timing([[one[part] for one in lap] for lap in lines]).mean for part in PARTS}
    return Degree(_timing(laps), _timing(bare), spent)


def _timing(laps: Laps) -> Timing:
    """Each case's median over the laps; the median and the mean of those, in milliseconds."""
    each = [1e3 * statistics.median(seconds) for seconds in zip(*laps, strict=True)]
    return Timing(statistics.median(each), statistics.fmean(each), len(each))


# ---- torch's own test classes


def _suites(degrees: Sequence[int]) -> list[Suite]:
    classes = (("MultiProcessTestCase", 2), ("MultiProcContinuousTest", 10))
    return [_suite(name, degree, tests) for name, tests in classes for degree in degrees]


def _suite(name: str, degree: int, tests: int) -> Suite:
    """Runs torch's test class in a process of its own, one example per test."""
    with tempfile.TemporaryDirectory(prefix="tpcheck-bench-") as folder:
        environment = os.environ | {
            "TPCHECK_BENCH_DEGREE": str(degree),
            "TPCHECK_BENCH_FOLDER": folder,
            "OMP_NUM_THREADS": "1",  # as tpcheck's ranks have it
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        command = [sys.executable, "-m", "tpcheck.bench.torch_cases", name, str(tests)]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=SUITE_LIMIT
            )
        except subprocess.TimeoutExpired:
            return Suite(name, degree, reason=f"longer than {SUITE_LIMIT:g} s")
    if done.returncode:
        return Suite(name, degree, reason=_why(done.stderr))
    found = json.loads(done.stdout.splitlines()[-1])
    # where the first test's ranks serve all, that test is the start and not an example
    seconds = found["seconds"] if len(found["starts"]) > 1 else found["seconds"][1:]
    return Suite(name, degree, statistics.median(found["starts"]), _timing([seconds]))


def _why(stderr: str) -> str:
    missing = re.search(r"No module named '([\w.]+)'", stderr)
    lines = stderr.strip().splitlines() or ["it printed nothing"]
    return f"needs {missing[1]}" if missing else lines[-1][:200]
