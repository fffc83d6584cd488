"""`python -m tests.catalogue.long_run`: a small language model in 20 steps of training, at degrees
2 and 4, with dropout, clipping and main parameters.

- `right`: the right one passes, vanilla and SP, in each dtype
- `faults`: each of twelve is found at the step at which it begins, and named
- `bounds`: after each step, how far off a parameter may be, beside how far the step moves it;
  and how small a fault in one gradient is found
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tests.catalogue.long_run.bounds import table
from tests.catalogue.long_run.faults import FAULTS, RIGHT, Fault
from tests.catalogue.long_run.model import DEGREES, DTYPES, case_of
from tpcheck import Case, Check
from tpcheck.engines.engine import Engine
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict

#: No fault under SP, where each rank drops elements of its own tokens.
VANILLA = ("mask-different-where-it-must-be-shared",)


def main() -> int:
    parser = argparse.ArgumentParser(prog="long_run", description=__doc__)
    parser.add_argument("what", choices=["right", "faults", "bounds"])
    parser.add_argument("names", nargs="*", metavar="FAULT", help=f"of {', '.join(_names())}")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--begins", type=int, default=7, help="the first wrong step, from 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sp", action="store_true", help="the vanilla faults, under SP")
    parser.add_argument("--tp", type=int, nargs="*", default=DEGREES)
    parser.add_argument("--dtype", nargs="*", default=DTYPES)
    given = parser.parse_args()
    if unknown := set(given.names) - _names():
        raise SystemExit(
            f"long_run: {', '.join(sorted(unknown))}: not one of {', '.join(_names())}"
        )
    lines = {"right": _right, "faults": _found, "bounds": _bounds}[given.what]
    wrong = 0
    preload = {Fault.__module__}
    with Engine("gloo", max(given.tp), time_limit=120.0, preload=preload) as engine:
        engine.start()
        for line, fine in lines(engine, given):
            print(line, flush=True)
            wrong += not fine
    return 1 if wrong else 0


def _names() -> set[str]:
    return {fault.name for fault in FAULTS}


def _right(engine: Engine, given: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """The run without a fault."""
    for sp, tp, dtype in product((False, True), given.tp, given.dtype):
        case = case_of(tp, dtype, given.seed)
        begun = time.monotonic()
        check = RIGHT[sp].check(case, given.steps, given.steps)
        result = _search(check, engine, case)
        worst = max(result.usage.values(), default=float("nan"))
        line = f"{check.name:12} tp={tp} {dtype:8} {result.verdict.value} "
        line += f"error / bound {worst:.2f}, {time.monotonic() - begun:.1f} s"
        yield line, result.verdict is Verdict.PASS


def _found(engine: Engine, given: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """Each fault, at each degree and in each dtype."""
    for fault in FAULTS:
        if given.names and fault.name not in given.names:
            continue
        if given.sp and (fault.sequence_parallel or fault.name in VANILLA):
            continue
        fault = replace(fault, sequence_parallel=fault.sequence_parallel or given.sp)
        for tp, dtype in product(given.tp, given.dtype):
            begun = time.monotonic()
            case = case_of(tp, dtype, given.seed)
            result = _search(fault.check(case, given.steps, given.begins - 1), engine, case)
            said, fine = _told(fault, result, given.begins)
            seconds = time.monotonic() - begun
            yield f"{fault.name:42} tp={tp} {dtype:8} {seconds:5.1f} s  {said}", fine


def _told(fault: Fault, result: CheckResult, begins: int) -> tuple[str, bool]:
    """What is said of it, and whether that is the step and the cause."""
    found = result.counterexample
    if found is None:
        return f"{result.verdict.value}: {result.reason or 'not found'}", False
    first = min(mismatch.name.at.step for mismatch in found.mismatches) + 1
    code = found.diagnosis.code
    fine = first == begins and code in fault.named
    return f"step {first}, {code}: {found.diagnosis.message}", fine


def _search(check: Check, engine: Engine, case: Case) -> CheckResult:
    options = Options(examples=1, degrees=(case.tp,), dtypes=(case.dtype,), corpus=None)
    return Search(check, engine, options).run()


def _bounds(engine: Engine, given: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """The table of bounds."""
    for tp, dtype in product(given.tp, given.dtype):
        for line in table(engine, given.steps, tp, dtype, given.seed):
            yield line, True


if __name__ == "__main__":
    raise SystemExit(main())
