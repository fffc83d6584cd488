"""The time line of one case: which part of it takes how long. The parts make up the whole."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.oracle import expected, noise
from tpcheck.protocol.messages import RankReport
from tpcheck.runner import files
from tpcheck.runner import runner as running
from tpcheck.runner.runner import Runner

# in the order in which a case comes to them; what is left of the whole is "the rest"
DRAW = "drawing, layout"
REFERENCE = "reference in float64"
OWN = "reference in the case's dtype"
NOISE = "noisy runs, for the bounds"
SPREAD = "spread of each tensor"
SAVE = "writing the bundle"
RANK = "ranks, build to compare"
WIRE = "to the ranks and back"
JUDGE = "judging the ranks' reports"
LOOK = "second look at what is suspect"
STATE = "the state of the processes"
REST = "the rest"
PARTS = (DRAW, REFERENCE, OWN, NOISE, SPREAD, SAVE, RANK, WIRE, JUDGE, LOOK, STATE, REST)


class Spans:
    """Times calls inside one case by wrapping the functions themselves. Each part has its own time:
    that of the calls inside it which are parts, too, is not in it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._inside: list[float] = []  # of each call that is open: seconds of those inside it

    def move(self, seconds: float, of: str, to: str) -> None:
        """So much of one part is another's."""
        self.seconds[of] -= seconds
        self.seconds[to] += seconds

    @contextlib.contextmanager
    def span(self, part: str) -> Iterator[None]:
        """The block is this part."""
        self._inside.append(0.0)
        began = time.perf_counter()
        try:
            yield
        finally:
            whole = time.perf_counter() - began
            self.seconds[part] += whole - self._inside.pop()
            if self._inside:
                self._inside[-1] += whole

    @contextlib.contextmanager
    def around(self, owner: Any, attribute: str, part: str) -> Iterator[None]:
        """In the block, every call of `owner.attribute` is this part."""
        original = getattr(owner, attribute)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.span(part):
                result = original(*args, **kwargs)
            if part == WIRE:
                self._ranks([one for one in result if isinstance(one, RankReport)])
            return result

        setattr(owner, attribute, timed)
        try:
            yield
        finally:
            setattr(owner, attribute, original)

    def _ranks(self, reports: list[RankReport]) -> None:
        """What ranks say that they took; the slowest is waited for."""
        for part, what in ((RANK, "rank"), (STATE, "state")):
            self.move(max((one.seconds[what] for one in reports), default=0.0), WIRE, part)


def time_line(runner: Runner, case: Case) -> dict[str, float]:
    """Part → seconds, of one case on warm ranks."""
    spans = Spans()
    with contextlib.ExitStack() as stack:
        for owner, attribute, part in (
            (running, "pose", DRAW),
            (expected, "first_run", REFERENCE),
            (expected, "low_run", OWN),
            (expected, "own_run", OWN),
            (noise.Noise, "several", NOISE),
            (expected, "least_of", SPREAD),
            (expected, "spreads_of", SPREAD),
            (files, "write_bundle", SAVE),
            (Engine, "run", WIRE),
            (Runner, "_judge", JUDGE),
            (running, "judged", JUDGE),
            (running, "screened", LOOK),
            (running, "look_again", LOOK),
            (Runner, "restore", STATE),
        ):
            stack.enter_context(spans.around(owner, attribute, part))
        with spans.span(REST):
            runner.run(case)
    return spans.seconds
