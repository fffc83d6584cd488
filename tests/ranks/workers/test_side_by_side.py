"""Checks side by side: what one after the other says, in order, whatever becomes of a worker."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.parallel.linear import RowLinear
from tests.candidates import CASE, check, linear
from tests.ranks.search.test_attempt import broken, fail
from tpcheck import Case, Check, specs
from tpcheck.engines.engine import Engine
from tpcheck.errors import Untrusted
from tpcheck.search import hunt, schedule
from tpcheck.search.corpus import Corpus
from tpcheck.search.options import Options
from tpcheck.search.session import Session, open_session
from tpcheck.search.verify import verify_all
from tpcheck.verdict import CheckResult, Counterexample, Verdict
from tpcheck.workers.side_by_side import verify_side_by_side

OPTIONS = Options(examples=4, degrees=(2,), dtypes=("float64", "float32"), corpus=None)
TWO = partial(open_session, "gloo", 2)


class NoSum(RowLinear):
    def sum_output(self, partial: Any) -> Any:
        return partial


class Averaged(RowLinear):
    def sum_output(self, partial: Any) -> Any:
        return super().sum_output(partial) / self.degree


RIGHT, WRONG = check(RowLinear).named("right"), check(NoSum).named("wrong")
ALSO = check(Averaged).named("averaged")


def told(results: list[CheckResult]) -> list[tuple[Any, ...]]:
    """All of a result but its seconds."""
    return [
        (
            result.name,
            result.verdict,
            result.examples,
            result.reason,
            result.trouble,
            result.usage,
            result.namesake,
            _told(result.counterexample),
        )
        for result in results
    ]


def _told(found: Counterexample | None) -> Any:
    return found and (found.id, found.case, found.diagnosis, found.found_after, found.mismatches)


def side_by_side(checks: list[Check], options: Options = OPTIONS, **more: Any) -> list[CheckResult]:
    return verify_side_by_side(checks, TWO, options, engine="gloo", jobs=2, **more)


def test_they_say_what_one_after_the_other_does(tmp_path: Path) -> None:
    checks = [RIGHT, WRONG, broken(reference=fail), ALSO, RIGHT]
    options = replace(OPTIONS, corpus=Corpus(tmp_path / "one"))
    with TWO() as session:
        alone = verify_all(checks, session, options)
    order: list[CheckResult] = []
    found = side_by_side(
        checks, replace(OPTIONS, corpus=Corpus(tmp_path / "two")), finished=order.append
    )
    assert told(found) == told(alone)
    assert [result.verdict.value for result in found] == ["PASS", "FAIL", "UNKNOWN", "FAIL", "PASS"]
    assert sorted(map(found.index, order)) == [0, 1, 2, 3, 4]
    kept = [{path.name for path in (tmp_path / of).iterdir()} for of in ("one", "two")]
    assert kept[0] == kept[1] and len(kept[0]) == 2


@pytest.mark.sweep  # as one after the other, which is in each run
def test_under_a_budget_what_passes_is_told_first() -> None:
    order: list[CheckResult] = []
    checks = [WRONG, RIGHT, ALSO]
    options = replace(OPTIONS, time_budget=600.0)
    found = side_by_side(checks, options, finished=order.append)
    assert [result.name for result in found] == ["wrong", "right", "averaged"]
    assert order[0].name == "right"
    with TWO() as session:
        assert told(found) == told(verify_all(checks, session, OPTIONS))


def kill_worker(case: Case) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_costs_one_verdict() -> None:
    killed = Check(
        replace(specs.row_linear(), requires=kill_worker), linear(RowLinear), name="killed"
    )
    found = side_by_side([RIGHT, killed, WRONG, ALSO, RIGHT])
    assert [r.verdict.value for r in found] == ["PASS", "UNKNOWN", "FAIL", "FAIL", "PASS"]
    assert found[1].trouble and "is gone" in str(found[1].reason)


def test_a_session_that_is_not_trusted_is_told() -> None:
    @contextlib.contextmanager
    def untrusted() -> Iterator[Session]:
        with TWO() as session:
            session.engine.canary_ran, session.engine.untrusted = True, "not found"
            yield session

    with pytest.raises(Untrusted, match="not found"):
        verify_side_by_side([RIGHT], untrusted, OPTIONS, engine="gloo", jobs=2)


# ---- a budget of time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at it takes a twentieth of a second."""
    looks = itertools.count()
    for module in (hunt, schedule):
        fake = SimpleNamespace(monotonic=lambda: next(looks) / 20)
        monkeypatch.setattr(module, "time", fake)


@pytest.mark.usefixtures("clock")
def test_each_check_has_its_share_of_the_time(gloo: Engine) -> None:
    options = replace(OPTIONS, examples=500, time_budget=3.0)
    order: list[str] = []
    found = verify_all(
        [WRONG, RIGHT.named("first"), RIGHT.named("second")],
        Session(gloo),
        options,
        finished=lambda result: order.append(result.name),
    )
    assert order == ["first", "second", "wrong"]
    assert [result.verdict.value for result in found] == ["FAIL", "PASS", "PASS"]
    failed = found[0].counterexample
    assert failed is not None and failed.diagnosis.code == "missing-all-reduce"
    assert found[0].asked is None
    ran = [result.examples for result in found[1:]]
    assert all(result.asked == 500 for result in found[1:])
    assert all(8 < count < 40 for count in ran) and abs(ran[0] - ran[1]) < 4


@pytest.mark.usefixtures("clock")
@pytest.mark.sweep  # as one after the other, which is in each run
def test_when_the_time_is_up_failures_are_still_explained(gloo: Engine) -> None:
    options = replace(OPTIONS, examples=500, time_budget=1.25)
    found = verify_all([WRONG, RIGHT, ALSO], Session(gloo), options)
    assert [result.verdict.value for result in found] == ["FAIL", "PASS", "FAIL"]
    codes = [r.counterexample.diagnosis.code for r in found if r.counterexample is not None]
    assert codes == ["missing-all-reduce", "averaged-not-summed"]


@pytest.mark.usefixtures("clock")
def test_a_degree_that_is_cut_goes_on_while_there_is_time(gloo: Engine) -> None:
    """The list of a degree ends, and leaves the rest of its share to the other one."""
    few = [Case(CASE.dims, mesh={"tp": 2}, seed=seed) for seed in range(2)]
    spec = replace(specs.row_linear(), cases=few)
    options = replace(OPTIONS, examples=2, time_budget=7.5)
    (result,) = verify_all([Check(spec, RIGHT.candidate)], Session(gloo), options)
    assert (result.verdict, result.examples, result.asked) == (Verdict.PASS, 2, None)


class OnlyOnce(RowLinear):
    """Wrong in the first case that any process runs, and never again."""

    def sum_output(self, partial: Any) -> Any:
        flag = Path(os.environ["TPCHECK_TEST_FLAG"]) / str(self.rank)
        if not flag.exists():
            flag.touch()
            return partial
        return super().sum_output(partial)


@pytest.mark.parametrize("budget", [None, 600.0])
def test_a_failure_that_shows_once_is_no_pass(
    gloo: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: float | None
) -> None:
    monkeypatch.setenv("TPCHECK_TEST_FLAG", str(tmp_path))
    gloo.kill()  # new ranks have it
    options = replace(OPTIONS, time_budget=budget)
    (result,) = verify_all([check(OnlyOnce)], Session(gloo), options)
    assert result.verdict is not Verdict.PASS
