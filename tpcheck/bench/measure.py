"""Measures: how long ranks take to start, what an example costs, and what it is spent on.

tpcheck and the bare loop take turns on the same warm ranks. Each case is timed once per lap; the
median over the laps stands for it, so that a busy machine moves the figures little.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tpcheck.bench import mlp
from tpcheck.bench.report import BenchReport, Degree, Start, Suite, Timing
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.oracle import expected, noise
from tpcheck.protocol.messages import RankReport
from tpcheck.runner import files
from tpcheck.runner import runner as running
from tpcheck.runner.runner import Runner

RANKS = 4
DEGREES = (2, 4)

#: Seconds that one of torch's test classes may take. They spawn ranks for every test; one that
#: takes longer hangs, and its row says so.
SUITE_LIMIT = 300.0

# where an example's time goes; what is left of the whole is "the rest"
REFERENCE = "reference in float64"
NOISE = "noisy runs, for the bounds"
OWN = "reference in the case's dtype"
POSE = "drawing, layout, spread"
SAVE = "writing the bundle"
RANK = "ranks, build to compare"
WIRE = "to the ranks and back"
STATE = "the state of the processes"
REST = "the rest"

Laps = list[list[float]]  # [lap][case]: seconds


def bench(*, repeats: int = 5, quick: bool = False) -> BenchReport:
    """Runs all measurements; about a minute and a half, or half a minute with `quick`.

    Args:
        repeats: laps over the cases, and starts of the ranks (at most three cold ones).
        quick: fewer cases and laps, and torch's test classes at one degree only.
    """
    count, repeats = (6, min(repeats, 2)) if quick else (12, repeats)
    load = os.getloadavg()[0]
    start = _starts(1 if quick else min(3, repeats))
    with Engine("gloo", RANKS) as engine:
        degrees = {d: _degree(engine, mlp.cases(d, count), repeats) for d in DEGREES}
    suites = [
        _suite(name, degree, tests)
        for name, tests in (("MultiProcessTestCase", 2), ("MultiProcContinuousTest", 10))
        for degree in (DEGREES[-1:] if quick else DEGREES)
    ]
    return BenchReport(RANKS, load, start, degrees, suites)


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
    _tpcheck(runner, work[:3])  # warm-up: candidate taught, groups made
    _bare(engine, work[:3])
    laps: Laps = []
    bare: Laps = []
    spans: list[dict[str, list[float]]] = []
    for _ in range(repeats):
        laps.append(_tpcheck(runner, work))
        bare.append(_bare(engine, work))
        spans.append(_spans(runner, work))
    spent = {what: _timing([one[what] for one in spans]).mean for what in spans[0]}
    return Degree(_timing(laps), _timing(bare), spent)


def _timing(laps: Laps) -> Timing:
    """Each case's median over the laps; the median and the mean of those, in milliseconds."""
    each = [1e3 * statistics.median(seconds) for seconds in zip(*laps, strict=True)]
    return Timing(statistics.median(each), statistics.fmean(each), len(each))


def _tpcheck(runner: Runner, work: Sequence[Case]) -> list[float]:
    out = []
    for case in work:
        began = time.perf_counter()
        result = runner.run(case)
        out.append(time.perf_counter() - began)
        assert not result.mismatches, (case.describe(), result.mismatches)
    return out


def _bare(engine: Engine, work: Sequence[Case]) -> list[float]:
    # rank 0's clock: its collectives wait for the other ranks
    return engine.call(mlp.loop, list(work), mesh=work[0].mesh)[0]


# ---- what it is spent on


class _Spans:
    """Times calls inside one example, by name, by wrapping the functions themselves."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, what: str, seconds: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds

    @contextlib.contextmanager
    def around(self, owner: Any, attribute: str, name: Any) -> Iterator[None]:
        """Times `owner.attribute`; `name(args, result)` says what it was."""
        original = getattr(owner, attribute)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            result = original(*args, **kwargs)
            self.add(name(args, result), time.perf_counter() - began)
            return result

        setattr(owner, attribute, timed)
        try:
            yield
        finally:
            setattr(owner, attribute, original)


def _spans(runner: Runner, work: Sequence[Case]) -> dict[str, list[float]]:
    """What → seconds of each case."""
    out: dict[str, list[float]] = {}
    for case in work:
        for what, seconds in _one(runner, case).items():
            out.setdefault(what, []).append(seconds)
    return out


def _one(runner: Runner, case: Case) -> dict[str, float]:
    spans = _Spans()

    def sent(_: Any, outcomes: Any) -> str:
        reports = [o.seconds for o in outcomes if isinstance(o, RankReport)]
        spans.add(RANK, max(seconds["rank"] for seconds in reports))
        spans.add(STATE, max(seconds["state"] for seconds in reports))
        return "run"

    with contextlib.ExitStack() as stack:
        stack.enter_context(spans.around(expected, "first_run", lambda *_: REFERENCE))
        stack.enter_context(spans.around(noise.Noise, "deviations", lambda *_: NOISE))
        stack.enter_context(spans.around(expected, "own_run", lambda *_: OWN))
        stack.enter_context(spans.around(running, "pose", lambda *_: "pose"))
        stack.enter_context(spans.around(files, "write_bundle", lambda *_: SAVE))
        stack.enter_context(spans.around(Engine, "run", sent))
        stack.enter_context(spans.around(running.Runner, "restore", lambda *_: "restore"))
        began = time.perf_counter()
        runner.run(case)
        whole = time.perf_counter() - began
    found = {what: spans.seconds.get(what, 0.0) for what in (REFERENCE, NOISE, OWN)}
    pose, run = spans.seconds["pose"], spans.seconds["run"]
    found[POSE] = pose - sum(found.values())
    found[SAVE] = spans.seconds[SAVE]
    found[RANK] = spans.seconds[RANK]
    found[WIRE] = run - found[RANK] - spans.seconds[STATE]
    found[STATE] = spans.seconds[STATE] + spans.seconds["restore"]
    return found | {REST: whole - pose - run - found[SAVE] - spans.seconds["restore"]}


# ---- torch's own test classes


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
