"""`tpcheck mutants --against`: the same mutants under the rules of others, side by side.

Each mutant is run in the same cases for every rule, until all rules have alarmed or the cases are
used up. The correct candidates then go through as many cases, since a rule that alarms on
everything kills every mutant, too.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpcheck import strategies
from tpcheck.bounds.other_rules import RULES, VALUES
from tpcheck.case import Case, Space
from tpcheck.errors import InvalidArgument
from tpcheck.runner.runner import Runner
from tpcheck.spec import Check
from tpcheck.verdict import CaseResult, Verdict

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine
    from tpcheck.mutation.mutant import Mutant
    from tpcheck.search.search import Options

CASES = 20  # a mutant, at most


@dataclass
class Against:
    """What each rule saw.

    `kills`: mutant → the rules that killed it, in `cases` cases. Of correct candidates:
    `candidates` → the rules that ever alarmed on it; `correct`: dtype → how many cases;
    `alarms`: rule → dtype → on how many it alarmed.
    """

    kills: dict[str, set[str]] = field(default_factory=dict)
    cases: int = 0
    candidates: dict[str, set[str]] = field(default_factory=dict)
    correct: Counter[str] = field(default_factory=Counter)
    alarms: dict[str, Counter[str]] = field(
        default_factory=lambda: {rule: Counter() for rule in RULES}
    )

    def killed(self, rule: str) -> int:
        return sum(rule in by for by in self.kills.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "mutants": len(self.kills),
            "cases": self.cases,
            "correct_candidates": len(self.candidates),
            "correct_cases": dict(self.correct),
            "rules": {
                rule: {
                    "means": means,
                    "killed": self.killed(rule),
                    "missed": sorted(m for m, by in self.kills.items() if rule not in by),
                    "correct_called_wrong": sorted(
                        name for name, by in self.candidates.items() if rule in by
                    ),
                    "alarms_on_correct": dict(self.alarms[rule]),
                }
                for rule, means in RULES.items()
            },
        }


def against(
    mutants: Sequence[Mutant],
    checks: Sequence[Check],
    engine: Engine,
    options: Options,
    *,
    finished: Callable[[str, set[str]], None] | None = None,
) -> Against:
    """Runs `mutants` under every rule, and the correct candidates of their specs (those of
    `checks` that have one) as often.

    Raises:
        InvalidArgument: none of `checks` is of a spec that a mutant has.
    """
    specs = {mutant.spec.name for mutant in mutants}
    correct = [check for check in checks if check.spec.name in specs]
    if not correct:
        raise InvalidArgument(f"no correct candidate of {', '.join(sorted(specs))} to compare with")
    out = Against()
    for mutant in mutants:
        runner = Runner(mutant.check, engine)
        open_ = set(RULES)
        for case in draw(mutant.check, engine, options, CASES):
            open_ -= judge(runner, case, open_)
            out.cases += 1
            if not open_:
                break
        out.kills[mutant.name] = set(RULES) - open_
        if finished:
            finished(mutant.name, out.kills[mutant.name])
    for runner, case in _in_turn(correct, engine, options, out.cases):
        found = judge(runner, case, set(RULES))
        out.correct[case.dtype] += 1
        out.candidates.setdefault(runner.check.title, set()).update(found)
        for rule in found:
            out.alarms[rule][case.dtype] += 1
    return out


def judge(runner: Runner, case: Case, among: set[str]) -> set[str]:
    """Which of the rules `among` alarm on this case; it is run once for most of them, and once
    more under cotangents of ones where that is asked for."""
    found: set[str] = set()
    if among - {".sum() loss"}:
        result = runner.run(case, others=True)
        found |= result.alarms
        if result.verdict is Verdict.FAIL:
            found.add("tpcheck")
        if _broken(result):
            return (found | {".sum() loss"}) & among
    if ".sum() loss" in among:
        result = runner.run(case, ones=True)
        if _broken(result) or VALUES & {m.kind for m in result.mismatches}:
            found.add(".sum() loss")
    return found & among


def _broken(result: CaseResult) -> bool:
    """Whether a rank did not finish."""
    kinds = {"exception", "hang", "crash"}
    return any(m.kind in kinds or "stack" in m.detail for m in result.mismatches)


def draw(check: Check, engine: Engine, options: Options, count: int) -> Iterator[Case]:
    """Up to `count` random cases of a check, one of each degree in turn; none that a known
    finding covers."""
    by_degree = []
    for tp in options.degrees:
        space = Space((tp,), options.dtypes, engine.ranks)
        strategy = strategies.of(check.spec, space)
        by_degree.append(strategies.sample(strategy, count, f"{options.seed} {check.title} {tp}"))
    found = (case for cases in itertools.zip_longest(*by_degree) for case in cases)
    known = [finding for finding in check.known if finding.applies()]
    apart = (case for case in found if case and not any(f.covers(case) for f in known))
    return itertools.islice(apart, count)


def _in_turn(
    checks: Sequence[Check], engine: Engine, options: Options, count: int
) -> Iterator[tuple[Runner, Case]]:
    """`count` cases in all, one of each check in turn."""
    each = -(-count // len(checks))
    runners = [Runner(check, engine) for check in checks]
    drawn = [draw(check, engine, options, each) for check in checks]
    for cases in itertools.zip_longest(*drawn):
        for runner, case in zip(runners, cases, strict=True):
            if case is not None and count > 0:
                count -= 1
                yield runner, case
