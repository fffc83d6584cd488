"""One search for one fault: `python -m tests.catalogue.rare.search FAULT SEED CASES MODE ENOUGH`.

ENOUGH is a file: once it is there, with `[cases, seconds]`, a search that has taken both ends.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis.strategies import SearchStrategy

from tests.catalogue.rare.faults import SELDOM
from tpcheck.case import Case
from tpcheck.figures.hunted import Finding, Hunted
from tpcheck.fuzz import turn
from tpcheck.fuzz.hunting import Hunting, Listener
from tpcheck.fuzz.novel import Looking
from tpcheck.fuzz.picking import Arm
from tpcheck.fuzz.state import State
from tpcheck.fuzz.turn import How, Subject, Turn, Turns
from tpcheck.search.corpus import Corpus
from tpcheck.search.options import Options
from tpcheck.search.session import open_session, preload_of
from tpcheck.search.stream import Stream
from tpcheck.workers.crew import Crew

RANKS, LIMIT = 2, 30.0


class _Over(Exception):
    """It was found, or took too many cases."""


class AsTheyCome(Stream):
    """Cases in the order in which Hypothesis draws them."""

    ahead = 1


class _Plain(Looking):
    """A hunt among any cases."""

    def _new_stream(
        self, strategy: SearchStrategy[Case], key: str, listed: Sequence[Case]
    ) -> Stream:
        return AsTheyCome(strategy, key, listed, self.past)


class _Unwatched(Turns):
    """Turns that ask for nothing that random search has no use for."""

    def _options(self, given: Turn) -> Options:
        return replace(super()._options(given), branches=False)


def search(name: str, seed: int, most: int, mode: str, enough: Path) -> dict[str, Any]:
    """What one search came to: cases and seconds until the fault was found."""
    found: list[Finding] = []

    def stop(finding: Finding) -> None:
        found.append(finding)
        raise _Over

    def moment(hunted: Hunted) -> None:
        if hunted.cases >= most or _has_taken(
            enough, hunted.cases, hunting.checks[0].known.seconds
        ):
            raise _Over

    with tempfile.TemporaryDirectory() as place:
        folder, check = Path(place), SELDOM[name]
        options = Options(seed=seed, degrees=(1,), corpus=Corpus(folder / "corpus"))
        state = State(folder / "state", fresh=True)
        hunting = Hunting(
            [Subject(name, check)],
            options,
            state,
            ranks=RANKS,
            time_limit=LIMIT,
            listener=Listener(found=stop, moment=moment),
        )
        if mode == "random":
            hunting.checks[0].arms = {How.LOOK: Arm()}
            vars(turn)["Looking"] = _Plain
        start = partial(
            open_session, "gloo", RANKS, time_limit=LIMIT, preload=preload_of([check]), confirm=True
        )
        subjects = [standing.subject for standing in hunting.checks]
        kind = _Unwatched if mode == "random" else Turns
        turns = kind(subjects, options, hunting.corpus, state.choices)
        crew = Crew(1, start, turns.take)
        try:
            hunting.run(crew)
        except _Over:
            pass
        finally:
            crew.kill()
        known = hunting.checks[0].known
    return {
        "name": name,
        "mode": mode,
        "seed": seed,
        "found": bool(found),
        "cases": found[0].found_after if found else known.cases,
        "seconds": round(known.seconds, 1),
        "code": found[0].code if found else None,
    }


def _has_taken(enough: Path, cases: int, seconds: float) -> bool:
    """As many as are enough, if that is known."""
    if not enough.exists():
        return False
    most, longest = json.loads(enough.read_text())
    return bool(cases >= most and seconds >= longest)


if __name__ == "__main__":
    name, seed, most, mode, enough = sys.argv[1:]
    print(json.dumps(search(name, int(seed), int(most), mode, Path(enough))))
