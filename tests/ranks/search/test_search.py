"""The search: every degree has its share, failures stay in their family, real ranks decide."""

from __future__ import annotations

import itertools
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fixtures.mutants import MUTANTS
from fixtures.parallel.linear import RowLinear
from tests import candidates
from tpcheck import Case, Check, Layout, Spec, specs
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.failed import CheckFailed
from tpcheck.search import hunt, schedule
from tpcheck.search.corpus import Corpus
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.search.verify import verify
from tpcheck.verdict import Verdict

RIGHT = candidates.check(RowLinear)
WRONG = next(m for m in MUTANTS if m.name == "row_linear_without_all_reduce").check


def test_each_degree_has_its_share(gloo: Engine) -> None:
    search = Search(RIGHT, gloo, Options(examples=9, degrees=(1, 2, 4), corpus=None))
    result = search.run()
    degrees = [r.case.tp for r in search.trials.results.values()]
    assert result.verdict is Verdict.PASS
    assert [degrees.count(d) for d in (1, 2, 4)] == [3, 3, 3]


def test_a_counterexample_found_on_threads_is_confirmed_on_processes(
    gloo: Engine, threads: Engine
) -> None:
    result = Search(WRONG, threads, Options(examples=5, corpus=None), gloo).run()
    assert result.counterexample is not None
    assert result.counterexample.engine == "gloo"
    assert result.counterexample.case.tp == 2


def alone() -> bool:
    """Whether this rank has a process of its own."""
    return threading.current_thread() is threading.main_thread()


class WrongOnThreads(RowLinear):
    """Forgets its all-reduce where ranks share a process."""

    def sum_output(self, partial: Any) -> Any:
        return super().sum_output(partial) if alone() else partial


class WrongOnProcesses(RowLinear):
    """Forgets its all-reduce where each rank is a process."""

    def sum_output(self, partial: Any) -> Any:
        return partial if alone() else super().sum_output(partial)


def test_what_only_threads_see_is_unknown(gloo: Engine, threads: Engine) -> None:
    result = Search(
        candidates.check(WrongOnThreads), threads, Options(examples=4, corpus=None), gloo
    ).run()
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason is not None and "threads fails and gloo passes: tp=" in result.reason
    assert "rank 0 output" in result.reason, result.reason


def test_ranks_that_can_not_share_a_process_do_not(gloo: Engine, threads: Engine) -> None:
    check = replace(candidates.check(WrongOnThreads), processes=True)
    result = Search(check, threads, Options(examples=4, corpus=None), gloo).run()
    assert (result.verdict, result.engine, result.examples) == (Verdict.PASS, "gloo", 4)


def test_what_threads_do_not_see_a_sample_on_processes_does(gloo: Engine, threads: Engine) -> None:
    result = Search(
        candidates.check(WrongOnProcesses), threads, Options(examples=4, corpus=None), gloo
    ).run()
    assert result.verdict is Verdict.FAIL


def test_no_case_at_a_degree_is_an_error(gloo: Engine) -> None:
    spec = replace(specs.row_linear(), cases=lambda space: _nothing())
    with pytest.raises(InvalidArgument, match="no case exists at tp=2,4"):
        Search(Check(spec, RIGHT.candidate), gloo, Options(corpus=None)).run()


def _nothing() -> Any:
    from hypothesis import strategies as st

    return st.nothing()


def test_verify_raises_with_the_report_and_saves(gloo: Engine, corpus: Corpus) -> None:
    with pytest.raises(CheckFailed, match="missing-all-reduce") as caught:
        verify(WRONG, engine=gloo, examples=4, corpus=corpus.folder)
    (result,) = caught.value.results
    assert result.counterexample is not None
    assert f"--corpus {corpus.folder}" in result.counterexample.reproduce
    assert [r.verdict for r in verify(RIGHT, engine=gloo, examples=4, corpus=corpus.folder)] == [
        Verdict.PASS
    ]


def test_a_counterexample_that_can_not_be_saved_is_reported(gloo: Engine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = Options(examples=4, seed=3, corpus=Corpus(tmp_path / "file"))
    found = Search(WRONG, gloo, options).run().counterexample
    assert found is not None and found.diagnosis.code == "missing-all-reduce"
    alone, _, why = found.reproduce.partition(" (not saved: ")
    assert alone.startswith("give its spec cases=") and why.startswith("can't keep cases in")
    named = {"Case": Case, "cases": None}
    exec(alone.removeprefix("give its spec "), named)
    assert named["cases"] == [found.case]


class WrongAtFour(RowLinear):
    """Wrong at tp=4, and at tp=2 in one case of ten or so."""

    def __init__(self, in_features: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(in_features, *args, **kwargs)
        self.wrong = self.degree == 4 or in_features == 9

    def sum_output(self, partial: Any) -> Any:
        return partial if self.wrong else super().sum_output(partial)


def test_a_saved_case_is_said_to_be_one_whatever_dtypes_are_asked_for(
    gloo: Engine, corpus: Corpus
) -> None:
    found, again = (
        Search(WRONG, gloo, Options(examples=4, dtypes=(dtype,), corpus=corpus)).run()
        for dtype in ("float64", "bfloat16")
    )
    said = [any("saved by an earlier run" in note for note in r.notes) for r in (found, again)]
    assert said == [False, True]
    assert again.counterexample and again.counterexample.case.dtype == "float64"


def test_a_saved_case_that_the_check_excludes_by_now_is_told_and_not_run(
    gloo: Engine, corpus: Corpus
) -> None:
    options = Options(examples=4, degrees=(2,), dtypes=("float64",), corpus=corpus)
    found = Search(WRONG, gloo, options).run().counterexample
    assert found is not None
    without = replace(WRONG, overrides={"dtypes": ("float32",)})
    search = Search(without, gloo, options)
    result = search.run()
    assert result.dtypes == ["float32"] and search.trials.result(found.case) is None
    (note,) = [note for note in result.notes if found.id in note]
    assert note.endswith("dtype=float64, which is not one of float32: its check excludes that now")
    assert (corpus.folder / f"{found.id}.json").exists()


def test_what_is_found_lower_afterwards_does_not_count(gloo: Engine, corpus: Corpus) -> None:
    options = Options(examples=2, corpus=corpus)
    search = Search(candidates.check(WrongAtFour), gloo, options)
    found = search.run().counterexample
    assert {r.case.tp for r in search.hunt.failing} == {2, 4}, "the later search found one, too"
    assert found is not None and (found.case.tp, found.found_after) == (2, 2)
    assert [path.stem for path in corpus.folder.glob("*.json")] == [found.id], "no larger one stays"
    again = Search(candidates.check(WrongAtFour), gloo, options).run()
    assert again.counterexample is not None
    assert (again.counterexample.id, again.counterexample.found_after) == (found.id, 0)


def test_nothing_sharded_at_all_is_seen_although_the_values_are_right(gloo: Engine) -> None:
    spec = Spec(
        name="plain",
        cases=[Case(dims={"n": 4})],
        reference=lambda case: torch.nn.Linear(4, 4),
        inputs=lambda case, draw: {"x": draw("x", 2, 4)},
        layout=lambda case: Layout(),
    )
    result = Search(
        Check(spec, lambda case, mesh: torch.nn.Linear(4, 4)), gloo, Options(corpus=None)
    ).run()
    assert result.counterexample is not None
    assert result.counterexample.diagnosis.code == "parameter-not-sharded"


def test_the_time_budget_ends_a_search_without_a_verdict_or_with_what_ran(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()  # at the clock, a fiftieth of a second each
    clock = SimpleNamespace(monotonic=lambda: next(looks) / 50)
    with monkeypatch.context() as patch:
        for module in (hunt, schedule):
            patch.setattr(module, "time", clock)
        result = Search(RIGHT, gloo, Options(examples=2000, corpus=None)).run(deadline=1.0)
    assert result.verdict is Verdict.PASS and 0 < result.examples < 50
    result = Search(RIGHT, gloo, Options(corpus=None)).run(deadline=time.monotonic() - 1)
    assert result.verdict is Verdict.UNKNOWN


class SlowOnce(RowLinear):
    """Hangs in the first process that comes along, and never again."""

    def sum_output(self, partial: Any) -> Any:
        flag = Path(os.environ["TPCHECK_TEST_FLAG"])
        if self.rank == 1 and not flag.exists():
            flag.touch()
            time.sleep(60)
        return super().sum_output(partial)


def test_a_time_limit_met_once_is_unknown_and_twice_a_fail(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPCHECK_TEST_FLAG", str(tmp_path / "flag"))
    options = Options(examples=2, degrees=(2,), corpus=None)
    with Engine("gloo", 2, time_limit=2) as engine:
        once = Search(candidates.check(SlowOnce), engine, options).run()
        assert once.verdict is Verdict.UNKNOWN and once.counterexample is None
        assert once.reason is not None and "time limit once" in once.reason
        options = Options(examples=2, degrees=(2,), corpus=None, shrink_cases=0)
        twice = Search(candidates.check(candidates.OneRankHangs), engine, options).run()
        assert twice.verdict is Verdict.FAIL
