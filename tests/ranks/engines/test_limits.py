"""What a case that does not end costs, and what it comes to."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch.distributed as dist

from tests import candidates, crowded
from tpcheck import Check
from tpcheck.case import Case
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines import waiting
from tpcheck.engines.engine import Engine
from tpcheck.report.as_json import detail
from tpcheck.runner.runner import Runner
from tpcheck.search.failures import decided
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Code

RIGHT = candidates.linear(candidates.Row)


def slow_build(case: Case, mesh: Any) -> Any:
    time.sleep(1.5)
    return RIGHT(case, mesh)


def endless_build(case: Case, mesh: Any) -> Any:
    while True:
        time.sleep(0.1)


def build_in_which_ranks_wait(case: Case, mesh: Any) -> Any:
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    dist.barrier(groups[mesh.get_rank()], async_op=True).wait()
    return RIGHT(case, mesh)


def computes_for_half_a_second(case: Case, mesh: Any) -> Any:
    module = RIGHT(case, mesh)
    until = time.process_time() + 0.5

    def compute(*_: Any) -> None:
        while time.process_time() < until:
            pass

    module.register_forward_pre_hook(compute)
    return module


def computes_for_ever(case: Case, mesh: Any) -> Any:
    module = RIGHT(case, mesh)

    def compute(*_: Any) -> None:
        while True:
            pass

    module.register_forward_pre_hook(compute)
    return module


def check(build: Any) -> Check:
    return Check(candidates.check(candidates.Row).spec, build, name=build.__name__)


def started(build: Any, engine: Engine) -> Runner:
    """Of ranks that are up, and have the candidate: what is slow then is the case."""
    runner = Runner(check(build), engine)
    engine.teach(runner.taught)
    return runner


def counted(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The cases that run on its engine from now on."""
    ran: list[Any] = []
    run = runner.engine.run

    def noted(key: str, work: Any, *more: Any) -> Any:
        ran.append(work)
        return run(key, work, *more)

    monkeypatch.setattr(runner.engine, "run", noted)
    return ran


def test_a_case_that_hangs_runs_twice_with_all_that_is_said_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Engine("gloo", 2, time_limit=1) as engine:
        runner = Runner(candidates.check(candidates.OneRankHangs), engine)
        ran = counted(runner, monkeypatch)
        result = decided(lambda: runner.run(candidates.CASE))
        examined = examine_failure(runner, result)
    assert (result.verdict, len(ran)) == (Verdict.FAIL, 2)
    assert examined.diagnosis.code is Code.DEADLOCK
    assert examined.diagnosis.message.startswith("the case took longer than 1 s")
    assert "misbehave" in detail(result.mismatches[1])["stack"]


def test_the_time_of_a_case_begins_when_all_ranks_have_built() -> None:
    with Engine("gloo", 2, time_limit=1) as engine:
        result = Runner(check(slow_build), engine).run(candidates.CASE)
    assert result.verdict is Verdict.PASS


def test_waiting_for_a_processor_is_not_time_of_the_case() -> None:
    with Engine("gloo", 2, time_limit=1.5) as engine:
        runner = started(computes_for_half_a_second, engine)
        with crowded.processors():
            result = runner.run(candidates.CASE)
    assert result.verdict is Verdict.PASS, result


def test_what_computes_for_ever_is_stopped_on_a_busy_machine() -> None:
    with Engine("gloo", 2, time_limit=0.5) as engine:
        runner = started(computes_for_ever, engine)
        with crowded.processors():
            result = runner.run(candidates.CASE)
    assert {m.kind for m in result.causes} == {"hang"}


def test_a_build_without_end_is_undecided_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "BUILD_LIMIT", 1.0)
    with Engine("gloo", 2, time_limit=0.5) as engine:
        runner = Runner(check(endless_build), engine)
        ran = counted(runner, monkeypatch)
        results = [runner.run(candidates.CASE) for _ in range(2)]
        assert [r.verdict for r in results] == [Verdict.UNKNOWN] * 2
        assert len(ran) == 1, "the next case would take as long"
        assert "build took longer than 1 s" in str(results[0].unknown)
        assert "preload=" in str(results[0].unknown)
        assert passes(engine).verdict is Verdict.PASS


def test_ranks_that_wait_for_one_another_in_build_are_a_deadlock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "STALL", 0.5)
    with Engine("gloo", 2, time_limit=20) as engine:
        result = Runner(check(build_in_which_ranks_wait), engine).run(candidates.CASE)
    assert result.verdict is Verdict.FAIL
    assert {m.kind for m in result.causes} <= {"hang", "collective"}


def passes(engine: Engine) -> CaseResult:
    return Runner(candidates.check(candidates.Row), engine).run(candidates.CASE)
