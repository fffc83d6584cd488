"""Several mutants at a time, and what becomes of them where a process ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fixtures.mutants import MUTANTS
from tests import candidates
from tpcheck.case import Case
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.figures.kills import Matrix, Row
from tpcheck.mutation.matrix import kill_all
from tpcheck.runner.runner import Runner
from tpcheck.search.corpus import Corpus
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.search.session import open_session
from tpcheck.verdict import Verdict

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def test_a_wrong_candidate_is_found_and_kept_once(gloo: Engine, corpus: Corpus) -> None:
    check = BY_NAME["row_linear_without_all_reduce"].check
    found = Search(check, gloo, Options(examples=50, corpus=corpus)).run().counterexample
    assert found is not None and 1 <= found.found_after <= 50
    assert corpus.find(found.id).case == found.case
    assert len(list(corpus.folder.glob("*.json"))) == 1


def test_found_in_a_run_of_the_whole_search_with_time_to_spare(gloo: Engine) -> None:
    """Shrinking is bounded: a check whose every case fails slowly still ends."""
    begun = time.monotonic()
    options = Options(examples=50, corpus=None, shrink_cases=20)
    result = Search(candidates.check(candidates.OneRankRaises), gloo, options).run()
    assert result.counterexample is not None
    assert result.counterexample.diagnosis.code == "rank-crash"
    assert time.monotonic() - begun < 300  # a bound on a loop, not a speed


THREE = [
    BY_NAME[name]
    for name in ("row_linear_averaged", "row_linear_reduced_twice", "bias_added_on_every_rank")
]
QUICKLY = Options(examples=5, corpus=None, shrink_cases=0)


@pytest.mark.sweep  # a third of a minute; of checks it is tested in each run
def test_two_mutants_at_a_time_come_to_what_one_does() -> None:
    told: list[Row] = []
    start = partial(open_session, "gloo", 2)
    options = Options(examples=5, degrees=(2,), corpus=None, shrink_cases=0)
    found = kill_all(THREE, start, options, jobs=2, finished=told.append)
    alone = kill_all(THREE, start, options)
    assert [row.mutant for row in told] == [mutant.name for mutant in THREE], "in their order"
    assert told == found.rows

    def fates(of: Matrix) -> Any:
        return [(row.mutant, row.killed, row.kinds, row.examples, row.diagnosis) for row in of.rows]

    assert fates(found) == fates(alone)
    assert all(row.killed for row in found.rows), fates(found)


def test_an_engine_that_can_not_start_is_refused_in_its_own_words() -> None:
    with pytest.raises(InvalidArgument, match="time_limit=0: give a positive"):
        kill_all(THREE, partial(open_session, "gloo", 2, time_limit=0.0), QUICKLY, jobs=2)


def test_a_process_that_is_killed_is_one_clear_line() -> None:
    with pytest.raises(InvalidArgument, match="is gone: ended by native code, or killed"):
        kill_all(THREE, partial(os._exit, 1), QUICKLY, jobs=2)  # type: ignore[arg-type]


def killed(case: Case) -> None:
    """In place of a reference."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_mutant_whose_process_is_killed_costs_no_other() -> None:
    first, second, third = THREE
    fatal = replace(second, spec=replace(second.spec, reference=killed))
    found = kill_all([first, fatal, third], partial(open_session, "gloo", 2), QUICKLY)
    assert [row.mutant for row in found.rows if row.killed] == [first.name, third.name]
    (lost,) = found.troubled()
    assert lost.mutant == fatal.name and "is gone" in (lost.trouble or "")


def test_an_error_ends_the_matrix_and_its_processes() -> None:
    told: list[Row] = []

    def stop(row: Row) -> None:
        told.append(row)
        raise KeyboardInterrupt

    start = partial(open_session, "gloo", 2)
    with pytest.raises(KeyboardInterrupt):
        kill_all(10 * THREE, start, QUICKLY, jobs=2, finished=stop)
    assert len(told) == 1
    patience = time.monotonic() + 60
    while (left := multiprocessing.active_children()) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not left


def test_a_bias_that_is_one_row_twice_is_no_order_of_rows(gloo: Engine) -> None:
    runner = Runner(BY_NAME["row_bias_loaded_sharded"].check, gloo)
    found = runner.run(Case(candidates.linear_dims(4, 2, seq=1, bias=True)))
    assert found.verdict is Verdict.FAIL
    diagnosis = examine_failure(runner, found).diagnosis
    assert diagnosis.code == "wrong-placement" and "more than once" in diagnosis.message
