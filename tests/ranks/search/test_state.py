"""A check starts on ranks of its own, and what only earlier cases explain is not a failure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn

import pytest
import torch
import torch.distributed as dist

from fixtures.parallel.linear import RowLinear
from tests import candidates
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.report import as_json, text
from tpcheck.runner.posing import FirstSteps
from tpcheck.runner.runner import Runner
from tpcheck.search.corpus import Corpus
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.search.session import Session
from tpcheck.search.trials import Anew, Trials
from tpcheck.search.verify import verify_all
from tpcheck.verdict import CaseResult, CheckResult, Verdict

OPTIONS = Options(examples=5, degrees=(2,), dtypes=("float64",), corpus=None)


class Counts(RowLinear):
    """Wrong from the second one of a rank on."""

    built: ClassVar[Counter[int]] = Counter()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.first = self.built[dist.get_rank()] == 0
        self.built[dist.get_rank()] += 1

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        return super().sum_output(partial) if self.first else partial


class WrongWhereWide(RowLinear):
    """Wrong in some cases, whatever ran before."""

    def __init__(self, in_features: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(in_features, *args, **kwargs)
        self.wide = in_features > 2

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        return partial if self.wide else super().sum_output(partial)


class Wrong(RowLinear):
    """In every case."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1.0


class Switches(RowLinear):
    """Correct, and leaves `RowLinear` wrong."""

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        out = super().sum_output(partial)
        RowLinear.sum_output = lambda self, partial: partial  # type: ignore[method-assign]
        return out


def run(cls: type, engine: Engine) -> CheckResult:
    return Search(candidates.check(cls), engine, OPTIONS).run()


def test_a_failure_that_earlier_cases_explain_is_a_note(gloo: Engine) -> None:
    found = run(Counts, gloo)
    assert found.verdict is Verdict.PASS and found.counterexample is None
    (note,) = found.left
    assert note.what is None and note.after == 1
    (line,) = text.notes(found)
    assert "state-left-behind" in line and "passes on fresh ones" in line
    (row,) = as_json.check(found)["state_left_behind"]
    assert row["what"] is None and row["case"] == note.case.to_dict()


def test_a_failure_that_earlier_cases_explain_is_not_kept(gloo: Engine, tmp_path: Path) -> None:
    """It was saved at once, before anything else could go wrong."""
    saves = replace(OPTIONS, corpus=Corpus(tmp_path))
    assert Search(candidates.check(Counts), gloo, saves).run().verdict is Verdict.PASS
    assert list(tmp_path.rglob("*.json")) == []


def test_a_failure_that_can_not_be_examined_is_run_again_as_it_is(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("examining")

    monkeypatch.setattr(FirstSteps, "watched", raises)
    assert run(Counts, gloo).verdict is Verdict.PASS
    assert run(WrongWhereWide, gloo).verdict is Verdict.FAIL


def test_a_failure_that_is_the_case_s_own_is_a_failure_whatever_ran_before(gloo: Engine) -> None:
    found = run(WrongWhereWide, gloo)
    assert found.verdict is Verdict.FAIL and found.left == []
    assert found.counterexample is not None and found.counterexample.found_after > 1


class WrongAfterWide(WrongWhereWide):
    """Wrong where wide, and in every case after such a one."""

    spoilt = False

    def __init__(self, in_features: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(in_features, *args, **kwargs)
        self.wide = self.wide or WrongAfterWide.spoilt
        WrongAfterWide.spoilt = self.wide


def test_a_smaller_case_that_only_earlier_ones_explain_is_not_told(gloo: Engine) -> None:
    found = run(WrongAfterWide, gloo).counterexample
    assert found is not None and found.case["in_features"] > 2


def test_a_check_starts_on_ranks_that_no_other_has_used(gloo: Engine) -> None:
    """A class that a candidate replaces for good is seen by no guard."""
    right, switches = candidates.check(RowLinear), candidates.check(Switches)
    one_case = replace(OPTIONS, examples=1)
    for order in ([switches, right], [right, switches], [switches, right, switches, right]):
        results = verify_all(order, Session(gloo), one_case)
        assert [result.verdict for result in results] == [Verdict.PASS] * len(order)


def test_ranks_that_are_started_for_a_case_have_run_nothing_before(gloo: Engine) -> None:
    gloo.kill()
    two, four = (
        Case(dims=candidates.linear_dims(in_features), mesh={"tp": tp})
        for in_features, tp in ((2, 2), (4, 4))
    )
    trials = Trials(Runner(candidates.check(RowLinear), gloo), (), anew=Anew.FIRST)
    before = [trials.before(trials.run(case)) for case in (two, four, replace(two, seed=1))]
    assert before == [0, 0, 1]


def confirmed(cls: type, threads: Engine, gloo: Engine) -> CheckResult:
    """What threads find, and real ranks confirm."""
    return Search(candidates.check(cls), threads, OPTIONS, gloo).run()


def test_real_ranks_confirm_each_case_on_ranks_of_its_own(gloo: Engine, threads: Engine) -> None:
    options = replace(OPTIONS, degrees=(1, 2), examples=4)
    check = candidates.check(Counts)
    found = Search(check, threads, options, gloo).run()
    assert found.verdict is Verdict.PASS and found.left[0].after
    assert confirmed(WrongWhereWide, threads, gloo).verdict is Verdict.FAIL


def test_what_real_ranks_can_not_decide_is_no_pass(
    gloo: Engine, threads: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    undecided = CaseResult(candidates.CASE, "gloo", unknown="build has no end")
    monkeypatch.setattr(Trials, "on_real", lambda *_: undecided)
    options = replace(OPTIONS, degrees=(1, 2))  # what fails keeps tp=2 from running
    for cls in (RowLinear, WrongWhereWide, Wrong):
        found = Search(candidates.check(cls), threads, options, gloo).run()
        assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "build has no end")
        assert not found.more and found.about is not None


def test_real_ranks_that_met_the_limit_once_have_decided_nothing(gloo: Engine) -> None:
    late = SimpleNamespace(timed_out=True)
    done = iter([late, CaseResult(candidates.CASE, "gloo")])
    real: Any = SimpleNamespace(run=lambda case: next(done), engine=SimpleNamespace(ran=0))
    trials = Trials(Runner(candidates.check(RowLinear), gloo), (), real)
    found = trials.on_real(candidates.CASE)
    assert found.verdict is Verdict.UNKNOWN and "once" in str(found.unknown)


def test_of_cases_that_pass_the_collectives_are_not_kept(gloo: Engine) -> None:
    """Of thousands that would be most of the memory."""
    for cls, kept in ((RowLinear, False), (Wrong, True)):
        trials = Trials(Runner(candidates.check(cls), gloo), ())
        result = trials.run(candidates.CASE)
        assert any(result.trace), "whoever asked for it has them"
        there = trials.result(candidates.CASE)
        assert there is not None and any(there.trace) is kept
        assert (there.verdict, there.judged) == (result.verdict, result.judged)
