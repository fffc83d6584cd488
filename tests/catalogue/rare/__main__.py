"""`python -m tests.catalogue.rare`: how long the hunt takes to find each fault that few cases show,
beside plain random search, in cases and in seconds.

Of each fault and seed the two run at the same time, each in a process of its own with one worker,
so that what else the machine does costs both the same. Random search ends, too, where it has taken
twice the cases and twice the seconds that the hunt took to find the fault: it counts with those,
which is less than it would have taken.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests import ROOT
from tests.catalogue.rare.faults import SELDOM

MODES = ("feedback", "random")
#: What random search takes of the cases and the seconds that found the fault, until it is given up.
TWICE = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="rare", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(SELDOM)}")
    parser.add_argument("--seeds", type=int, default=5, metavar="N")
    parser.add_argument("--most", type=int, default=6000, metavar="N", help="cases of a search")
    parser.add_argument("--state", type=Path, default=ROOT / ".tpcheck" / "rare.jsonl")
    given = parser.parse_args()
    if unknown := set(given.faults) - SELDOM.keys():
        raise SystemExit(f"rare: {', '.join(sorted(unknown))}: not one of {', '.join(SELDOM)}")
    given.state.parent.mkdir(parents=True, exist_ok=True)
    rows = _rows(given.state)
    for seed in range(1, given.seeds + 1):
        for name in given.faults or SELDOM:
            if not any((row["name"], row["seed"]) == (name, seed) for row in rows):
                rows += _both(name, seed, given.most, given.state)
    print("\n".join(_table(rows)))
    return 0


def _rows(file: Path) -> list[dict[str, object]]:
    """What an earlier run has measured."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _both(name: str, seed: int, most: int, file: Path) -> list[dict[str, object]]:
    """One fault and seed in both modes."""
    command = [sys.executable, "-m", "tests.catalogue.rare.search", name, str(seed), str(most)]
    with tempfile.TemporaryDirectory() as place:
        told = Path(place) / "enough"
        hunt, plain = (
            subprocess.Popen([*command, mode, told], cwd=ROOT, stdout=subprocess.PIPE, text=True)
            for mode in MODES
        )
        texts = [hunt.communicate()[0]]
        if not hunt.returncode and (row := json.loads(texts[0]))["found"]:
            part = told.with_name("written")
            part.write_text(json.dumps([TWICE * row["cases"], TWICE * row["seconds"]]))
            part.rename(told)
        texts.append(plain.communicate()[0])
    if hunt.returncode or plain.returncode:
        raise SystemExit(f"rare: {name} could not be searched for")
    rows = [json.loads(text) for text in texts]
    with file.open("a") as out:
        out.writelines(f"{json.dumps(row)}\n" for row in rows)
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


def _table(rows: list[dict[str, object]]) -> Iterator[str]:
    """Medians; a search that did not find its fault counts with all that it took."""
    yield f"{'fault':28} {'feedback':>10} {'random':>10} {'feedback':>12} {'random':>10}  found"
    for name in [*dict.fromkeys(str(row["name"]) for row in rows), "all"]:
        own = [row for row in rows if name in (row["name"], "all")]
        of = {mode: [row for row in own if row["mode"] == mode] for mode in MODES}
        cases, seconds = (
            [statistics.median(float(str(row[what])) for row in of[mode]) for mode in MODES]
            for what in ("cases", "seconds")
        )
        found = ", ".join(f"{sum(bool(r['found']) for r in of[m])} of {len(of[m])}" for m in MODES)
        yield (
            f"{name:28} {cases[0]:10.0f} {cases[1]:10.0f} {seconds[0]:10.0f} s {seconds[1]:8.0f} s"
            f"  {found}"
        )


if __name__ == "__main__":
    sys.exit(main())
