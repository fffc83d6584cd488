"""`verify`: draws cases, runs them, shrinks what fails, saves and names it.

Hypothesis draws and shrinks, in the driver, over warm ranks. Every case is run once: results are
kept by case, so that what Hypothesis replays is not run again. Where the search runs on threads,
real ranks (gloo) confirm every counterexample, and a sample of what passes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis.errors import HypothesisException

from tpcheck import strategies
from tpcheck.case import Case, Space
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines import ranks_for
from tpcheck.errors import CheckFailed, InvalidArgument
from tpcheck.known import Ledger
from tpcheck.runner.runner import Runner
from tpcheck.search import canary
from tpcheck.search.corpus import Corpus, Saved
from tpcheck.search.stream import Stream
from tpcheck.spec import Check
from tpcheck.verdict import (
    CaseResult,
    CheckResult,
    Counterexample,
    FindingResult,
    Verdict,
)

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine

LOOK_LOWER_SECONDS = 5.0
SLICE = 10
VALUES = {"output", "input_grad", "param_grad", "param", "loss", "grad_norm", "replica"}


@dataclass(frozen=True)
class Options:
    """What a run asks for.

    Args:
        examples: cases a check.
        seed: of the search; the same seed draws the same cases, as long as the code is the same
            (Hypothesis takes some of its numbers from it).
        degrees, dtypes: what cases may have.
        time_budget: seconds for all checks together, or None.
        corpus: where counterexamples are kept, or None for nowhere.
        shrink_seconds: how long a failing case may be made smaller.
    """

    examples: int = 20
    seed: int = 0
    degrees: tuple[int, ...] = (2, 4)
    dtypes: tuple[str, ...] = ("float64", "float32", "bfloat16")
    time_budget: float | None = None
    corpus: Corpus | None = field(default_factory=Corpus)
    shrink_seconds: float = 20.0


def timed_out(result: CaseResult) -> bool:
    """Whether the time limit is all that speaks against the case."""
    causes = [m for m in result.mismatches if not m.detail.get("consequence")]
    return bool(causes) and all("took longer" in str(m.detail.get("reason")) for m in causes)


def family(result: CaseResult) -> str:
    """What kind of failure it is; shrinking stays within one."""
    kinds = {m.kind for m in result.mismatches if not m.detail.get("consequence")}
    order = ["crash", "hang", "collective", "exception", "sharding"]
    order += ["communication_bytes", "saved_bytes"]
    for kind in order:
        if kind in kinds:
            return kind
    return "values" if kinds & VALUES else next(iter(sorted(kinds)), "none")


class Search:
    """One check on one engine: the state of the search for a counterexample.

    Args:
        confirm: real ranks, where `engine` simulates them: a sample of what passes, and every
            counterexample, is run there, and the verdict rests on that.
    """

    def __init__(
        self, check: Check, engine: Engine, options: Options, confirm: Engine | None = None
    ) -> None:
        if confirm is not None and check.processes:
            engine, confirm = confirm, None
        self.check, self.engine, self.options = check, engine, options
        self.confirm = Runner(check, confirm) if confirm else None
        self.runner = Runner(check, engine)
        self.results: dict[str, CaseResult] = {}
        self.failing: list[CaseResult] = []
        self.deadline: float | None = None
        self.shrink_until: float | None = None
        self.before = 0  # cases that ran before the first was drawn
        self.larger: set[str] = set()  # saved before they were shrunk
        self.unsaved = ""  # why a counterexample is not in the corpus
        self.degree_until: float | None = None
        self.impossible: set[int] = set()  # degrees at which the spec has no case
        self.ledger = Ledger(check.known, self._code_of)

    def run(self, deadline: float | None = None) -> CheckResult:
        """Replays what is saved, then draws; returns the check's verdict."""
        start = time.monotonic()
        self.deadline = deadline
        found = self._run_findings() or self._replay()
        self.before = len(self.results)
        found = found or self._draw()
        refuted = None
        if self.confirm is not None:
            found, refuted = self._confirmed(self.confirm, found)
        result = self._summary(time.monotonic() - start)
        if refuted is not None:
            result.verdict, result.reason = Verdict.UNKNOWN, refuted
        if found is not None:
            first = self.failing[0] if self.failing else found
            result.counterexample = self._counterexample(found, first)
            self._forget_larger(found)
            result.verdict = Verdict.FAIL
            result.seconds = time.monotonic() - start
        return result

    # ---- finding

    def _run_findings(self) -> CaseResult | None:
        """The case of each known finding that this run can reach."""
        for finding in self.ledger.active():
            case = finding.case
            late = self.deadline is not None and time.monotonic() > self.deadline
            asked = case.tp in self.options.degrees and case.dtype in self.options.dtypes
            if late or not asked or case.world_size > self.engine.ranks:
                continue
            result = self.evaluate(case)
            if self._fails(result):
                return result
        return None

    def _fails(self, result: CaseResult) -> bool:
        """Whether it is a failure that no known finding accounts for."""
        return not self.ledger.settles(result) and result.verdict is Verdict.FAIL

    def _code_of(self, result: CaseResult) -> str | None:
        """The diagnosis of a failing case, by real ranks; None where they see none."""
        if self.confirm is not None:
            result = self.confirm.run(result.case)
            if result.verdict is not Verdict.FAIL:
                return None
        return examine_failure(self.confirm or self.runner, result).diagnosis.code

    def _replay(self) -> CaseResult | None:
        """Saved counterexamples first; those that no longer fail are forgotten."""
        corpus = self.options.corpus
        for saved in corpus.of(self.check.title, self.check.address()) if corpus else []:
            if saved.case.world_size > self.engine.ranks:
                continue
            with contextlib.suppress(InvalidArgument):
                result = self.evaluate(saved.case)
                if self._fails(result):
                    return result
                if result.verdict is not Verdict.FAIL:
                    assert corpus is not None
                    corpus.remove(saved.id)
        return None

    def _confirmed(
        self, real: Runner, found: CaseResult | None
    ) -> tuple[CaseResult | None, str | None]:
        """The counterexample as real ranks see it, or why there is no verdict."""
        self.runner = real
        if found is None:
            passed = (r for r in self.results.values() if r.verdict is not Verdict.FAIL)
            sample = {r.case.tp: r.case for r in passed}
            ran = [real.run(case) for case in sample.values()]
            return next((r for r in ran if r.verdict is Verdict.FAIL), None), None
        again = real.run(found.case)
        if again.verdict is Verdict.FAIL:
            return again, None
        case = found.case.describe()
        return None, f"{self.engine.name} fails and {real.engine.name} passes: {case}"

    def _draw(self) -> CaseResult | None:
        """Each degree gets its share of the examples; they take turns, the smallest first."""
        degrees = sorted(set(self.options.degrees))
        if not callable(self.check.spec.cases):
            degrees = degrees[:1]  # a list of cases says its degrees itself
        share, more = divmod(self.options.examples, len(degrees))
        left = {degree: share + (index < more) for index, degree in enumerate(degrees)}
        streams: dict[int, Stream] = {}
        while turn := [degree for degree in degrees if left[degree]]:
            for index, degree in enumerate(turn):
                self._allot(index, len(turn))
                count = min(SLICE, left[degree])
                if degree not in streams:
                    streams[degree] = self._stream(degree)
                left[degree] = left[degree] - count if self._search(streams[degree], count) else 0
                if self.failing:
                    self._look_lower([streams[d] for d in degrees if d < degree])
                    return min(self.failing, key=_size)
        self.impossible = {degree for degree, stream in streams.items() if stream.empty}
        if len(self.impossible) == len(streams):
            raise InvalidArgument(
                f"{self.check.title}: no case exists at tp={_list(degrees)}, "
                f"dtype={_list(self.options.dtypes)}; give other degrees or dtypes"
            )
        return None

    def _stream(self, degree: int) -> Stream:
        space = Space((degree,), self.options.dtypes, self.engine.ranks)
        strategy = strategies.of(self.check.spec, space)
        listed = () if callable(self.check.spec.cases) else self.check.spec.cases
        return Stream(strategy, f"{self.options.seed} {degree}", listed)

    def _allot(self, index: int, turns: int) -> None:
        """Each turn may take its share of the time that is left."""
        now = time.monotonic()
        if self.deadline is not None:
            self.degree_until = now + max(0.0, self.deadline - now) / (turns - index)

    def _search(self, stream: Stream, count: int) -> bool:
        """Runs the next `count` cases of a stream up to one that fails, and shrinks that; False
        where there are no more, or no more time."""
        if self.degree_until is not None and time.monotonic() > self.degree_until:
            return False
        try:
            cases = stream.take(count)
        except HypothesisException as error:
            raise InvalidArgument(f"{self.check.title}: {str(error).splitlines()[0]}") from None
        for case in cases:
            if self._result(case) is None:
                return False
            if self._fails_alike(case):
                with contextlib.suppress(InvalidArgument):  # of a duller case: the failure stands
                    stream.shrink(case, self._fails_alike)
                return True
        return len(cases) == count

    def _fails_alike(self, case: Case) -> bool:
        """Whether the case fails in the way of the first one that did."""
        result = self._result(case)
        if result is None or not self._fails(result):
            return False
        if self.failing and family(result) != family(self.failing[0]):
            return False
        if not any(result is known for known in self.failing):
            self._note(result)
        return True

    def _look_lower(self, streams: list[Stream]) -> None:
        """What failed at a high degree may fail at a lower one too, only more rarely there."""
        first, self.failing = self.failing, []
        for stream in streams:
            seconds = min(LOOK_LOWER_SECONDS, self.options.shrink_seconds)
            self.degree_until = time.monotonic() + seconds
            while not self.failing and self._search(stream, SLICE):
                pass
            if self.failing and family(self.failing[0]) == family(first[0]):
                break
        self.failing = first + [r for r in self.failing if family(r) == family(first[0])]

    def _result(self, case: Case) -> CaseResult | None:
        """The case's result; None once the time is up (known results stay)."""
        known = self.results.get(case.canonical())
        if known is not None:
            return known
        now = time.monotonic()
        limit = self.shrink_until if self.failing else self.degree_until
        return None if limit is not None and now > limit else self.evaluate(case)

    def evaluate(self, case: Case) -> CaseResult:
        """Runs one case, once."""
        result = self.runner.run(case)
        if timed_out(result):
            result = self._once_more(result)
        self.results[case.canonical()] = result
        return result

    def _once_more(self, slow: CaseResult) -> CaseResult:
        """A case that took too long may have met a busy machine: on fresh ranks it hangs again,
        or nothing is decided. It is never a PASS."""
        again = self.runner.run(slow.case)
        if again.verdict is Verdict.FAIL:
            return again
        reason = f"{slow.case.describe()} ran into the time limit once, and passed on fresh ranks"
        return CaseResult(slow.case, slow.engine, unknown=f"{reason} (a busy machine, or a race)")

    def _note(self, result: CaseResult) -> None:
        """A new failing case: saved at once, before anything else can go wrong."""
        if not self.failing:
            self.shrink_until = time.monotonic() + self.options.shrink_seconds
            diagnosis = {"code": "unclassified", "message": "not yet diagnosed"}
            self.larger.add(self._save(result, diagnosis))
        self.failing.append(result)

    # ---- telling

    def _save(self, result: CaseResult, diagnosis: dict[str, Any]) -> str:
        identity = result.case.id(self.check.title)
        if self.options.corpus is None:
            return identity
        entry = Saved(
            id=identity,
            check=self.check.title,
            address=self.check.address(),
            case=result.case,
            engine=self.engine.name,
            mismatches=result.mismatches,
            diagnosis=diagnosis,
        )
        try:
            self.options.corpus.save(entry)
        except InvalidArgument as error:  # a full disk must not cost the counterexample
            self.unsaved = str(error)
        else:
            self.unsaved = ""
        return identity

    def _counterexample(self, found: CaseResult, first: CaseResult) -> Counterexample:
        examined = examine_failure(self.runner, found)
        identity = self._save(found, examined.diagnosis.to_dict())
        return Counterexample(
            id=identity,
            case=found.case,
            mismatches=examined.mismatches,
            diagnosis=examined.diagnosis,
            engine=found.engine,
            first_divergence=examined.first_divergence,
            reproduce=self._reproduce(identity),
            shrunk_from=len(self.failing),
            found_after=self._found_after(first),
        )

    def _found_after(self, first: CaseResult) -> int:
        """How many cases were drawn up to the first that failed, and with it; those drawn later,
        to shrink it or at lower degrees, don't count. 0 for a case that was not drawn."""
        return max(0, list(self.results).index(first.case.canonical()) + 1 - self.before)

    def _forget_larger(self, found: CaseResult) -> None:
        """The first failing case of each degree was saved at once; the shrunk one takes their
        place."""
        if self.options.corpus is not None and not self.unsaved:
            for larger in self.larger - {found.case.id(self.check.title)}:
                self.options.corpus.remove(larger)

    def _reproduce(self, identity: str) -> str:
        corpus = self.options.corpus
        if corpus is None:
            return ""
        if self.unsaved:
            return f"run this again with seed {self.options.seed} (not saved: {self.unsaved})"
        if self.check.address() is None:
            return f"run this again: the saved case {identity} comes first"
        return corpus.command(identity)

    def _summary(self, seconds: float) -> CheckResult:
        ran = list(self.results.values())
        undecided = [r for r in ran if r.verdict is Verdict.UNKNOWN]
        verdict = Verdict.UNKNOWN if undecided or not ran else Verdict.PASS
        usage: dict[str, float] = {}
        for result in ran:
            dtype = result.case.dtype
            usage[dtype] = max(usage.get(dtype, 0.0), result.usage)
        reason = undecided[0].unknown if undecided else None
        asked = set(self.options.degrees) if callable(self.check.spec.cases) else set()
        never = sorted(asked - self.impossible - {r.case.tp for r in ran})
        if never and verdict is Verdict.PASS and self.options.examples >= len(asked):
            verdict, reason = Verdict.UNKNOWN, f"the time was up before tp={_list(never)} could run"
        if (stale := self.ledger.stale()) is not None:
            verdict, reason = Verdict.UNKNOWN, stale
        return CheckResult(
            name=self.check.title,
            verdict=verdict,
            engine=self.engine.name,
            examples=len(ran),
            seconds=seconds,
            dtypes=sorted({r.case.dtype for r in ran}),
            tp_degrees=sorted({r.case.tp for r in ran}),
            reason=reason if ran else "the time was up before a case could run",
            usage=usage,
            findings=self._findings(),
        )

    def _findings(self) -> list[FindingResult]:
        """What became of the known findings, each with its smallest case."""
        found = self.ledger.report()
        for finding, row in zip(self.ledger.findings, found, strict=True):
            if finding in self.ledger.failed:
                failed = self.ledger.failed[finding]
                row.counterexample = self._counterexample(min(failed, key=_size), failed[0])
        return found


def _size(result: CaseResult) -> tuple[Any, ...]:
    """The order in which failing cases are preferred: the dullest first."""
    case = result.case
    numbers = [v for v in case.dims.values() if isinstance(v, (int, float))]
    flags = [case.microbatches, case.step, case.memory != "contiguous", case.magnitude != 0]
    return (case.world_size, sum(numbers), sum(map(int, flags)), case.dtype != "float64", case.seed)


def _list(items: Iterable[object]) -> str:
    return ",".join(map(str, items))


def simulated(engine: Engine) -> bool:
    """Whether the engine's ranks are no processes: its verdicts need real ones to rest on."""
    return not engine.kind.processes


def real_ranks(engine: Engine) -> Engine:
    """A gloo engine as large as `engine`."""
    return type(engine)("gloo", engine.ranks, time_limit=engine.time_limit, preload=engine.preload)


def verify_all(
    checks: Sequence[Check],
    engine: Engine,
    options: Options,
    *,
    confirm: Engine | None = None,
    started: Callable[[Check], None] | None = None,
    finished: Callable[[CheckResult], None] | None = None,
) -> list[CheckResult]:
    """Runs checks one after the other; `started` and `finished` are told of each."""
    end = None if options.time_budget is None else time.monotonic() + options.time_budget
    results = []
    for index, check in enumerate(checks):
        if started:
            started(check)
        deadline = None
        if end is not None:
            now = time.monotonic()
            deadline = now + max(0.0, end - now) / (len(checks) - index)
        result = Search(check, engine, options, confirm).run(deadline)
        results.append(result)
        if finished:
            finished(result)
    return results


def verify(
    *checks: Check,
    engine: Engine | str = "gloo",
    examples: int = 20,
    seed: int = 0,
    degrees: tuple[int, ...] = (2, 4),
    dtypes: tuple[str, ...] = ("float64", "float32", "bfloat16"),
    time_budget: float | None = None,
    corpus: Corpus | None = None,
) -> list[CheckResult]:
    """Verifies `checks`; returns their results when all PASS.

    Args:
        engine: a warm `Engine`, or the name of one to start for this call.
        examples, seed, degrees, dtypes, time_budget: see `Options`.
        corpus: where counterexamples are kept; by default `.tpcheck/corpus`.

    Raises:
        CheckFailed: a check ended in FAIL or UNKNOWN; the message is the report.
        InvalidArgument: something given can't be used.
    """
    __tracebackhide__ = True
    if not checks:
        raise InvalidArgument("verify() was given no check")
    for check in checks:
        if (reason := check.spec.cannot_run()) is not None:
            raise InvalidArgument(f"{check.title} {reason}")
    options = Options(
        examples=examples,
        seed=seed,
        degrees=tuple(degrees),
        dtypes=tuple(dtypes),
        time_budget=time_budget,
        corpus=corpus or Corpus(),
    )
    with contextlib.ExitStack() as stack:
        if isinstance(engine, str):
            from tpcheck.engines.engine import Engine

            preload = {name for check in checks for name in check.spec.preload}
            engine = stack.enter_context(Engine(engine, ranks_for(degrees), preload=preload))
        if engine.trusted is None:
            untrusted = canary.sings(engine)
            engine.trusted = untrusted is None
            if untrusted:
                raise CheckFailed(f"UNKNOWN  {untrusted}", [])
        confirm = stack.enter_context(real_ranks(engine)) if simulated(engine) else None
        results = verify_all(checks, engine, options, confirm=confirm)
    bad = [result for result in results if result.verdict is not Verdict.PASS]
    if bad:
        from tpcheck.report.text import failure

        raise CheckFailed("\n\n".join(failure(result) for result in bad), bad)
    return results
