"""The campaign: random cases of correct candidates, how much of its bound each uses, and alarms.

It goes round all (check, degree, dtype), a few cases of each at a time, so that a part of it is a
fair sample. Each finished unit is a line of the state file, and a later run goes on from there.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis.errors import HypothesisException

from tpcheck import strategies
from tpcheck.case import Case, Space
from tpcheck.errors import InvalidArgument
from tpcheck.runner.runner import Runner
from tpcheck.search.corpus import Corpus, Saved
from tpcheck.search.search import timed_out
from tpcheck.spec import Check
from tpcheck.verdict import CaseResult, Verdict

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine

STATE = Path(".tpcheck") / "campaign.jsonl"
UNIT = 10  # cases of one (check, degree, dtype) in a row
# What decides where a bound lies: figures taken before and after a change of it don't mix.
_BOUNDS = ("tensors", "bounds", "oracle", "runner", "ranks")  # folders of tpcheck
_VERSION = 1


@dataclass(frozen=True)
class Plan:
    """What a campaign draws from; a state file belongs to one plan.

    Args:
        degrees, dtypes: what cases may have.
        seed: of all draws.
    """

    degrees: tuple[int, ...] = (1, 2, 3, 4, 8)
    dtypes: tuple[str, ...] = ("float64", "float32", "bfloat16", "float16")
    seed: int = 0


@dataclass(frozen=True)
class Unit:
    """A few cases of one check at one degree in one dtype, and what they came to."""

    check: str
    tp: int
    dtype: str
    round: int
    usage: list[float] = field(default_factory=list)  # largest error / bound, of each that passed
    alarms: list[str] = field(default_factory=list)  # ids of cases that failed
    undecided: int = 0
    known: int = 0  # covered by a known finding, not run
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, int, str, int]:
        return self.check, self.tp, self.dtype, self.round

    @property
    def decidable(self) -> bool:
        """Whether there are cases of this kind, besides those of known findings."""
        return self.cases + self.undecided > 0

    @property
    def cases(self) -> int:
        """How many cases were decided."""
        return len(self.usage) + len(self.alarms)


class State:
    """The units that are done, on disk: one JSON line each, after a line that says the plan.

    Raises:
        InvalidArgument: the file belongs to another plan or to other bounds, or is no such file.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path, self.units = path, dict[tuple[str, int, str, int], Unit]()
        here = {"schema_version": _VERSION, **asdict(plan), "bounds": digest_of_bounds()}
        here = json.loads(json.dumps(here))
        if not path.exists():
            self._append(here)
            return
        try:
            head, *lines = path.read_text(encoding="utf-8").split("\n")
            given = json.loads(head)
            found = [Unit(**json.loads(line)) for line in lines[:-1]]  # the last may be cut short
        except (OSError, ValueError, TypeError) as error:
            raise InvalidArgument(f"{path} is no state of a campaign: {error}") from None
        changed = [k for k in here if not isinstance(given, dict) or given.get(k) != here[k]]
        if changed:
            raise InvalidArgument(
                f"{path} holds a campaign with other {', '.join(changed)}; give --state another "
                "file, or remove it"
            )
        self.units = {unit.key: unit for unit in found}
        if lines[-1]:
            path.write_text("\n".join([head, *lines[:-1], ""]), encoding="utf-8")

    def add(self, unit: Unit) -> None:
        """Keeps a unit, on disk at once."""
        self.units[unit.key] = unit
        self._append(asdict(unit))

    def _append(self, line: dict[str, Any]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise InvalidArgument(f"can't write {self.path}: {error.strerror}") from None


def digest_of_bounds() -> str:
    """A digest of the code that derives bounds."""
    folder = Path(__file__).parent.parent
    files = sorted(file for name in _BOUNDS for file in (folder / name).glob("*.py"))
    code = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(code).hexdigest()[:12]


class Campaign:
    """Runs what is left of a plan.

    Args:
        checks: of correct candidates; any FAIL is a false alarm (or a fault to be looked into).
        corpus: where cases that alarm are kept, for `tpcheck replay`.
        real: processes, for checks whose ranks can't share one; by default `engine`.
    """

    def __init__(
        self,
        checks: Sequence[Check],
        engine: Engine,
        plan: Plan,
        state: State,
        corpus: Corpus,
        real: Engine | None = None,
    ) -> None:
        self.checks = {check.title: check for check in checks}
        self.engine, self.plan, self.state, self.corpus = engine, plan, state, corpus
        self.real = real or engine
        self._runners: dict[str, Runner] = {}

    def run(
        self,
        cases: int,
        *,
        until: float | None = None,
        finished: Callable[[Unit], None] | None = None,
    ) -> Summary:
        """Goes on until `cases` cases are decided, or `until` (of `time.monotonic`).

        Raises:
            InvalidArgument: no check has a case in the plan's space.
        """
        done = sum(u.cases for u in self._own())
        for unit in self._remaining():
            if done >= cases or (until is not None and time.monotonic() > until):
                break
            ran = self._run(*unit)
            self.state.add(ran)
            done += ran.cases
            if finished:
                finished(ran)
        return summary(self._own())

    def _own(self) -> list[Unit]:
        return [unit for unit in self.state.units.values() if unit.check in self.checks]

    def _remaining(self) -> Iterator[tuple[str, int, str, int]]:
        """Round after round, each in an order of its own, so that a few cases are spread as many
        are; what had no case in the first round has none later."""
        kinds = list(itertools.product(self.checks, self.plan.degrees, self.plan.dtypes))
        for number in itertools.count():
            rng = random.Random(f"{self.plan.seed} {number}")
            for kind in rng.sample(kinds, len(kinds)):
                if (*kind, number) not in self.state.units:
                    yield (*kind, number)
            if number == 0:
                kinds = [kind for kind in kinds if self.state.units[*kind, 0].decidable]
            if not kinds:
                raise InvalidArgument("no check has a case at these degrees and dtypes")

    def _run(self, name: str, tp: int, dtype: str, number: int) -> Unit:
        check, begun = self.checks[name], time.monotonic()
        usage: list[float] = []
        alarms: list[str] = []
        undecided = known = 0
        for case in self._draw(check, tp, dtype, number):
            if any(f.covers(case) for f in check.known if f.applies()):
                known += 1
                continue
            result = self._judge(check, case)
            if result.verdict is Verdict.FAIL:
                alarms.append(self._keep(check, result))
            elif result.verdict is Verdict.PASS:
                usage.append(round(result.usage, 5))
            else:
                undecided += 1
        seconds = round(time.monotonic() - begun, 3)
        return Unit(name, tp, dtype, number, usage, alarms, undecided, known, seconds)

    def _draw(self, check: Check, tp: int, dtype: str, number: int) -> list[Case]:
        space = Space((tp,), (dtype,), self.engine.ranks)
        key = f"{self.plan.seed} {check.title} {tp} {dtype} {number}"
        if not callable(check.spec.cases):
            listed = [case for case in check.spec.cases if (case.tp, case.dtype) == (tp, dtype)]
            return strategies.reseeded(listed, key)
        try:
            return strategies.sample(strategies.of(check.spec, space), UNIT, key)
        except HypothesisException as error:
            raise InvalidArgument(f"{check.title}: {str(error).splitlines()[0]}") from None

    def _judge(self, check: Check, case: Case) -> CaseResult:
        engine = self.real if check.processes else self.engine
        runner = self._runners.setdefault(check.title, Runner(check, engine))
        result = runner.run(case)
        if not timed_out(result):
            return result
        # a busy machine may have been slow: a case that hangs again is an alarm, else undecided
        again = runner.run(case)
        return replace(again, unknown="too slow once")

    def _keep(self, check: Check, result: CaseResult) -> str:
        identity = result.case.id(check.title)
        self.corpus.save(
            Saved(
                id=identity,
                check=check.title,
                address=check.address(),
                case=result.case,
                engine=result.engine,
                mismatches=result.mismatches,
                diagnosis={"code": "unclassified", "message": "an alarm of a campaign"},
            )
        )
        return identity


@dataclass(frozen=True)
class Line:
    """Cases of one kind: how many, how many alarmed, and the quantiles of the largest
    error / bound in each that passed (NaN where none did)."""

    cases: int
    alarms: int
    median: float
    p99: float
    largest: float

    @staticmethod
    def of(units: Iterable[Unit]) -> Line:
        import numpy

        units = list(units)
        usage = [used for unit in units for used in unit.usage]
        quantiles = numpy.quantile(usage, (0.5, 0.99, 1.0)) if usage else [float("nan")] * 3
        alarms = sum(len(unit.alarms) for unit in units)
        return Line(sum(unit.cases for unit in units), alarms, *(float(q) for q in quantiles))

    def to_dict(self) -> dict[str, Any]:
        return {k: v if v == v else None for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Summary:
    """A campaign in figures."""

    whole: Line
    by_dtype: dict[str, Line]
    by_degree: dict[int, Line]
    by_check: dict[str, Line]
    alarms: list[str]
    undecided: int
    known: int
    seconds: float

    @property
    def rate(self) -> float:
        """The largest chance of an alarm a case that 95 in 100 such campaigns would rule out: of
        a Poisson count, 3 / n where there was none (the rule of three)."""
        n, k = self.whole.cases, self.whole.alarms + 1
        # half the 95 % quantile of χ² with 2k degrees of freedom (Wilson and Hilferty 1931)
        limit = k * (1 - 1 / (9 * k) + 1.645 / (3 * k**0.5)) ** 3
        return min(1.0, limit / n) if n else 1.0

    def to_dict(self) -> dict[str, Any]:
        def table(lines: dict[Any, Line]) -> dict[str, Any]:
            return {str(key): line.to_dict() for key, line in lines.items()}

        return {
            "cases": self.whole.cases,
            "alarms": self.alarms,
            "alarm_rate_below": self.rate,
            "undecided": self.undecided,
            "known": self.known,
            "seconds": round(self.seconds, 1),
            "whole": self.whole.to_dict(),
            "by_dtype": table(self.by_dtype),
            "by_degree": table(self.by_degree),
            "by_check": table(self.by_check),
        }


def summary(units: Sequence[Unit]) -> Summary:
    """The figures of these units."""

    def by(key: Callable[[Unit], Any], order: Iterable[Any]) -> dict[Any, Line]:
        return {value: Line.of(u for u in units if key(u) == value) for value in order}

    from tpcheck.case import DTYPES

    present = {unit.dtype for unit in units}
    return Summary(
        whole=Line.of(units),
        by_dtype=by(lambda u: u.dtype, [d for d in DTYPES if d in present]),
        by_degree=by(lambda u: u.tp, sorted({u.tp for u in units})),
        by_check=by(lambda u: u.check, sorted({u.check for u in units})),
        alarms=[identity for unit in units for identity in unit.alarms],
        undecided=sum(unit.undecided for unit in units),
        known=sum(unit.known for unit in units),
        seconds=sum(unit.seconds for unit in units),
    )
