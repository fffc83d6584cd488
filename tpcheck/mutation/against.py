"""`tpcheck mutants --against`: the same mutants under the rules of others, side by side.

Each mutant is run in the same cases for every rule, until all rules have alarmed or the cases are
used up. The correct candidates then go through as many cases, since a rule that alarms on
everything kills every mutant, too. What can't run is told, and the others go on.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from typing import TYPE_CHECKING

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument, let_through
from tpcheck.evidence import OfRank
from tpcheck.figures.rules import Against
from tpcheck.known import covering
from tpcheck.mutant import Mutant
from tpcheck.runner.runner import Runner
from tpcheck.search import drawing
from tpcheck.search.drawn import strategy_of
from tpcheck.search.options import Options
from tpcheck.search.session import Session
from tpcheck.search.trouble import why
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Rule

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine

#: Cases per mutant, at most. A rule that has not alarmed after that many is said to miss it: with
#: fewer, a rule is called blind that is only unlucky.
CASES = 20

EVERY = frozenset(Rule)


def against(
    mutants: Sequence[Mutant],
    checks: Sequence[Check],
    engine: Engine,
    options: Options,
    *,
    finished: Callable[[str, set[Rule]], None] | None = None,
) -> Against:
    """Runs `mutants` under every rule, and the correct candidates of their specs (those of
    `checks` that have one) as often.

    Raises:
        InvalidArgument: none of `checks` is of a spec that a mutant has, or the ranks can't be
            started again.
    """
    specs = {mutant.spec.name for mutant in mutants}
    correct = [check for check in checks if check.spec.name in specs]
    if not correct:
        raise InvalidArgument(f"no correct candidate of {', '.join(sorted(specs))} to compare with")
    out = Against()
    for mutant in mutants:
        with _its_own_trouble(mutant.name, engine, out):
            _kill(mutant, engine, options, out)
        if finished and mutant.name in out.kills:
            finished(mutant.name, out.kills[mutant.name])
    _alarm(correct, engine, options, out)
    return out


@contextlib.contextmanager
def _its_own_trouble(name: str, engine: Engine, out: Against) -> Iterator[None]:
    """What goes wrong in the block is that mutant's or candidate's."""
    try:
        yield
    except BaseException as error:
        let_through(error)
        if (gone := Session(engine).why_gone()) is not None:
            raise InvalidArgument(gone) from error
        out.troubled[name] = why(error)


def _kill(mutant: Mutant, engine: Engine, options: Options, out: Against) -> None:
    """Runs a mutant until every rule has seen it, or the cases are used up."""
    runner = Runner(mutant.check, engine)
    blind = set(EVERY)
    for case in draw(mutant.check, engine, options, CASES):
        blind -= alarmed(runner, case, blind)
        out.cases += 1
        if not blind:
            break
    out.kills[mutant.name] = set(EVERY - blind)


def alarmed(runner: Runner, case: Case, among: Set[Rule]) -> set[Rule]:
    """Which of the rules `among` alarm on this case; it is run once for most of them, and once
    more under cotangents of ones where that is asked for."""
    rules: set[Rule] = set()
    if among - {Rule.SUM_LOSS}:
        result = runner.run(case, others=True)
        rules |= result.alarms
        if result.verdict is Verdict.FAIL:
            rules.add(Rule.OURS)
        if _broken(result):
            return (rules | {Rule.SUM_LOSS}) & among
    if Rule.SUM_LOSS in among:
        result = runner.run(case, ones=True)
        if _broken(result) or any(m.kind.is_tensor for m in result.mismatches):
            rules.add(Rule.SUM_LOSS)
    return rules & among


def _broken(result: CaseResult) -> bool:
    """Whether a rank did not finish."""
    return any(isinstance(m.detail, OfRank) for m in result.mismatches)


def draw(check: Check, engine: Engine, options: Options, count: int) -> Iterator[Case]:
    """Up to `count` random cases of a check, one of each degree in turn; none that a known
    finding covers."""
    by_degree = []
    for tp in options.degrees:
        strategy = strategy_of(check, tp, options.degrees, options.dtypes, engine.ranks)
        by_degree.append(drawing.sample(strategy, count, f"{options.seed} {check.title} {tp}"))
    drawn = (case for cases in itertools.zip_longest(*by_degree) for case in cases)
    apart = (case for case in drawn if case and not covering(check.known, case))
    return itertools.islice(apart, count)


def _alarm(checks: Sequence[Check], engine: Engine, options: Options, out: Against) -> None:
    """Runs correct candidates in turn, as many cases in all as the mutants had."""
    left = out.cases
    each = -(-left // len(checks))
    turns = deque((Runner(check, engine), draw(check, engine, options, each)) for check in checks)
    while turns and left:
        runner, drawn = turns.popleft()
        with _its_own_trouble(runner.check.title, engine, out):
            if (case := next(drawn, None)) is not None:
                _count(runner, case, out)
                left -= 1
                turns.append((runner, drawn))


def _count(runner: Runner, case: Case, out: Against) -> None:
    rules = alarmed(runner, case, EVERY)
    out.correct[case.dtype] += 1
    out.candidates.setdefault(runner.check.title, set()).update(rules)
    for rule in rules:
        out.alarms[rule][case.dtype] += 1
