"""`python -m tests.catalogue.torture`: the stages, one after the other, and what they came to."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests import ROOT
from tests.catalogue.torture import (
    campaign,
    deaths,
    drivers,
    faults,
    hunts,
    judge,
    memory,
    permutations,
)
from tests.catalogue.torture.fault import KINDS, Effect
from tests.catalogue.torture.records import Records
from tests.catalogue.torture.rounds import Round, rounds

assert faults

#: Faults of each engine. Those of threads are about a third: what they share is what is new there.
COUNTS = {"gloo": 640, "threads": 220}
STAGES = ("faults", "drivers", "permutations", "memory", "deaths", "hunts")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("stages", nargs="*", default=STAGES, help=f"of {', '.join(STAGES)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="KIND", help="faults of one kind")
    parser.add_argument("--limit", type=int, metavar="N", help="faults of each engine, at most")
    parser.add_argument("--engine", choices=COUNTS, help="faults on one engine only")
    parser.add_argument("--permutations", type=int, default=100, metavar="N")
    parser.add_argument("--deaths", type=int, default=60, metavar="N")
    parser.add_argument("--interrupts", type=int, default=30, metavar="N", help="of the hunt")
    parser.add_argument("--state", type=Path, default=ROOT / ".tpcheck" / "torture")
    parser.add_argument("--list", action="store_true", help="the kinds, and what they do")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser


def main() -> int:
    # a shell that starts this in the background has Ctrl-C ignored, here and in what starts here
    signal.signal(signal.SIGINT, signal.default_int_handler)
    given = _parser().parse_args()
    if given.list:
        for kind in KINDS.values():
            print(f"{kind.family:13} {kind.name:40} {kind.effect:42} {kind.line}")
        print(f"{len(KINDS)} kinds")
        return 0
    if unknown := set(given.stages) - set(STAGES):
        raise SystemExit(f"torture: {', '.join(sorted(unknown))}: not one of {', '.join(STAGES)}")
    if given.only and given.only not in KINDS:
        raise SystemExit(f"torture: no kind {given.only!r}; --list has them")
    if given.worker:
        _work(given)
        return 0
    stages: dict[str, Callable[[], bool]] = {
        "faults": lambda: _faults(given),
        "drivers": lambda: drivers.main(_records(given, "drivers")),
        "permutations": lambda: permutations.main(
            given.permutations, given.seed, _records(given, "permutations")
        ),
        "memory": lambda: memory.main(_records(given, "memory")),
        "deaths": lambda: deaths.main(given.deaths, given.seed, _records(given, "deaths")),
        "hunts": lambda: hunts.main(given.interrupts, given.seed, _records(given, "hunts")),
    }
    fine = [stages[name]() for name in STAGES if name in given.stages]
    return 0 if all(fine) else 1


def _records(given: argparse.Namespace, stage: str) -> Records:
    return Records(given.state / f"{stage}-{given.seed}.jsonl")


def _planned(given: argparse.Namespace, engine: str) -> list[Round]:
    count = given.limit if given.limit is not None else COUNTS[engine]
    return rounds(engine, count, given.seed, given.only)


def _work(given: argparse.Namespace) -> None:
    from tests.catalogue.torture import worker

    records = _records(given, f"faults-{given.engine}")
    todo = campaign.left_of(_planned(given, given.engine), records.rows())
    worker.work(todo, records, Path(os.environ["TORTURE_FOLDER"]))


def _faults(given: argparse.Namespace) -> bool:
    """The faults of each engine; whether nothing is wrong."""
    rows: list[judge.Row] = []
    for engine in [given.engine] if given.engine else COUNTS:
        records = _records(given, f"faults-{engine}")
        planned = _planned(given, engine)
        words = ["-m", "tests.catalogue.torture", "--worker", "--engine", engine]
        words += ["--seed", str(given.seed), "--state", str(given.state)]
        words += ["--only", given.only] if given.only else []
        words += ["--limit", str(given.limit)] if given.limit is not None else []
        campaign.run(planned, records, lambda words=words: words, _told)
        wanted = {(one.number, one.label) for one in planned} | {(-1, "when the engine is closed")}
        rows += [row for row in records.rows() if (row.number, row.label) in wanted]
    print("\n" + judge.table(rows, {name: kind.line for name, kind in KINDS.items()}))
    leaving = {name for name, kind in KINDS.items() if kind.effect is Effect.LEAVES}
    print("\nleft state that no report names:", ", ".join(judge.unnamed(rows, leaving)) or "none")
    wrong = judge.troubles(rows) + judge.grown(rows)
    print("\n" + "\n".join(wrong or ["nothing is wrong"]))
    return not wrong


def _told(row: judge.Row) -> None:
    mark = "WRONG" if row.wrong else "ok"
    verdicts = " ".join(f"{one.verdict}" for one in row.seen)
    print(f"{row.engine} {row.number:4} {mark:5} {row.seconds:6.1f} s  {row.label}: {verdicts}")
    for line in judge.troubles([row]):
        print(f"    {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
