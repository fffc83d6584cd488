"""The candidate's own checkpoint: who saves, what is compared, and what goes wrong on the way."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fixtures.parallel.checkpoint import Checkpoint
from tests import candidates
from tpcheck import Case, Check
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.errors import CaseError, EngineUnavailable
from tpcheck.evidence import NotAsSaved
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind, Phase

FILES = Checkpoint()
AT_TWO = replace(candidates.CASE, dims={**candidates.CASE.dims, "in_features": 8})
ELSEWHERE = replace(AT_TWO, saved_at=4)


def saving(**functions: Any) -> Check:
    return replace(
        candidates.check(candidates.Row), **{"save": FILES.save, "load": FILES.load, **functions}
    )


def run(engine: Engine, case: Case, **functions: Any) -> tuple[Runner, CaseResult]:
    runner = Runner(saving(**functions), engine)
    return runner, runner.run(case)


def told(runner: Runner, result: CaseResult) -> tuple[str, str]:
    named = examine_failure(runner, result).diagnosis
    return str(named.code), named.message


@pytest.mark.parametrize("name", ["gloo", "threads"])
@pytest.mark.parametrize("case", [AT_TWO, ELSEWHERE, replace(AT_TWO, saved_at=1)])
def test_what_was_saved_is_what_is_loaded(
    request: pytest.FixtureRequest, name: str, case: Case
) -> None:
    engine = request.getfixturevalue(name)
    _, result = run(engine, case)
    assert result.verdict is Verdict.PASS, result.mismatches
    assert not list(Path(engine.folder).glob("*.checkpoint"))


def only_at_its_own_degree(module: Any, folder: Path) -> None:
    if len(list(folder.iterdir())) == module.degree:
        FILES.load(module, folder)
    else:
        full = FILES.merged(folder, module)
        with torch.no_grad():
            module.weight.copy_(full["weight"][:, : module.weight.shape[1]])
            if "bias" in full:
                module.bias.copy_(full["bias"])


def test_what_is_wrong_at_another_degree_alone_is_said_to_be(gloo: Engine) -> None:
    assert run(gloo, AT_TWO, load=only_at_its_own_degree)[1].verdict is Verdict.PASS
    runner, result = run(gloo, ELSEWHERE, load=only_at_its_own_degree)
    assert {m.kind for m in result.mismatches} == {Kind.PARAM}  # and not what follows
    assert {m.rank for m in result.mismatches} == {1}
    assert all(isinstance(m.detail, NotAsSaved) for m in result.mismatches)
    code, message = told(runner, result)
    assert code == "shard-order"
    assert message.endswith("saved at tp=4, right where the ranks load what they saved themselves")


def rounds(module: Any, folder: Path) -> None:
    FILES.load(module, folder)
    with torch.no_grad():
        module.weight.mul_(1 + 2**-52)


def test_the_last_bit_counts(gloo: Engine) -> None:
    _, result = run(gloo, replace(AT_TWO, dtype="float64"), load=rounds)
    assert {m.tensor for m in result.mismatches} == {"weight"}


def fails(module: Any, folder: Path) -> None:
    if module.degree == 4 and module.rank == 3:
        raise OSError("no room")
    FILES.save(module, folder)


def dies(module: Any, folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_fails_on_the_ranks_that_save_is_said_to_be_theirs(gloo: Engine) -> None:
    assert run(gloo, AT_TWO, save=fails)[1].verdict is Verdict.PASS
    runner, result = run(gloo, ELSEWHERE, save=fails)
    assert [m.rank for m in result.causes] == [3]
    assert result.causes[0].scene.phase is Phase.SAVE
    assert (result.case, result.saving) == (ELSEWHERE, ELSEWHERE.when_saved)
    code, message = told(runner, result)
    assert code == "rank-crash"
    assert message.endswith("no room (in save); so on the ranks that save, at tp=4")
    assert not list(Path(gloo.folder).glob("*.checkpoint"))


def test_a_rank_that_dies_while_it_saves_is_a_failure(gloo: Engine) -> None:
    runner, result = run(gloo, AT_TWO, save=dies)
    assert result.verdict is Verdict.FAIL
    assert told(runner, result)[0] == "rank-crash"
    assert run(gloo, AT_TWO)[1].verdict is Verdict.PASS


def test_a_loader_that_finds_nothing_raises_in_load(gloo: Engine) -> None:
    _, result = run(gloo, AT_TWO, save=lambda module, folder: None)
    assert {m.scene.phase for m in result.causes} == {Phase.LOAD}


def test_ranks_that_can_not_be_are_refused_in_a_line(gloo: Engine) -> None:
    with pytest.raises(CaseError, match="the check saves nothing"):
        Runner(candidates.check(candidates.Row), gloo).run(ELSEWHERE)
    with pytest.raises(EngineUnavailable, match="needs 8 ranks"):
        run(gloo, replace(AT_TWO, saved_at=8))


def leaves_a_thread(module: Any, folder: Path) -> None:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    FILES.save(module, folder)


def test_what_a_saver_leaves_behind_costs_no_verdict(gloo: Engine) -> None:
    _, result = run(gloo, ELSEWHERE, save=leaves_a_thread)
    assert result.verdict is Verdict.PASS, result.mismatches
    assert any(not left.restored for left in result.left)
