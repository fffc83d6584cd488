"""The pool: whatever a rank does becomes evidence, and the next case is decided normally."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT, candidates
from tpcheck.check import Check
from tpcheck.engines.engine import Engine
from tpcheck.errors import EngineUnavailable, InvalidArgument
from tpcheck.report.as_json import detail
from tpcheck.report.text import describe
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict


def run(engine: Engine, cls: type, **changes: object) -> CaseResult:
    return Runner(candidates.check(cls), engine).run(replace(candidates.CASE, **changes))


@pytest.fixture(autouse=True)
def next_case_is_decided_normally(gloo: Engine) -> object:
    yield
    assert run(gloo, candidates.Row).verdict is Verdict.PASS


def test_a_correct_candidate_passes_and_its_all_reduce_is_traced(gloo: Engine) -> None:
    result = run(gloo, candidates.Row)
    assert result.verdict is Verdict.PASS
    events = [(e.op, e.reduce_op, e.group, e.phase) for e in result.trace[1]]
    assert events == [("all_reduce", "sum", (0, 1), "forward")]
    assert result.trace[0][0].where.startswith("collectives.py:")


def _policy(mesh: object) -> list[int]:
    return [os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")]


def test_no_thread_of_a_rank_goes_before_another_when_it_wakes_up() -> None:
    """gloo's would: they then wait, and spin, for the one that they have pushed aside."""
    own = os.sched_getscheduler(0)
    with Engine("gloo", 2) as engine:
        threads = engine.call(_policy, mesh={"tp": 2})
    assert all(len(policies) > 1 and {*policies} == {os.SCHED_BATCH} for policies in threads)
    assert os.sched_getscheduler(0) == own


def _exits(case: object, mesh: object) -> object:
    sys.exit(3)


def test_ranks_that_exit_are_evidence_that_says_when(gloo: Engine) -> None:
    check = Check(candidates.check(candidates.Row).spec, _exits)
    first = Runner(check, gloo).run(candidates.CASE).mismatches[0]
    assert describe(first).startswith("rank 0 exception: SystemExit: 3 (in build)")


def test_one_rank_raises(gloo: Engine) -> None:
    result = run(gloo, candidates.OneRankRaises)
    assert result.verdict is Verdict.FAIL
    (cause,) = result.mismatches
    assert (cause.kind, cause.rank) == ("exception", 1)
    assert "deliberate" in detail(cause)["reason"]
    assert "misbehave" in detail(cause)["stack"]  # the rank's own traceback
    assert "all_reduce(sum)" in detail(cause)["peers"]["0"][-1]  # what its peer was in


def test_what_its_peers_come_to_is_heard_however_long_they_compute(gloo: Engine) -> None:
    (cause,) = run(gloo, candidates.OneRankRaisesWhileItsPeersCompute).mismatches
    assert "all_reduce(sum)" in detail(cause)["peers"]["0"][-1]


def test_one_rank_is_killed(gloo: Engine) -> None:
    result = run(gloo, candidates.OneRankIsKilled)
    crash = next(m for m in result.mismatches if m.kind == "crash")
    assert crash.rank == 1
    assert detail(crash)["reason"] == "killed by SIGKILL"
    assert "all_reduce(sum)" in detail(crash)["peers"]["0"][-1]


def test_one_rank_skips_a_collective_and_the_others_do_not_wait(gloo: Engine) -> None:
    result = run(gloo, candidates.OneRankSkipsTheCollective)
    hang = next(m for m in result.mismatches if m.kind == "hang")
    assert hang.rank == 0
    assert "rank 1, which finished without" in detail(hang)["reason"]
    assert "all_reduce(sum)" in detail(hang)["last"][-1]
    assert "sum_output" in detail(hang)["stack"]


@pytest.mark.parametrize("cls", [candidates.OneRankHangs, candidates.OneRankSpins])
def test_one_rank_hangs(cls: type) -> None:
    with Engine("gloo", 2, time_limit=2) as engine:
        result = run(engine, cls)
        assert {m.kind for m in result.mismatches} == {"hang"}
        stacks = {m.rank: detail(m)["stack"] for m in result.mismatches}
        assert "misbehave" in stacks[1]
        assert run(engine, candidates.Row).verdict is Verdict.PASS
        assert engine.starts == 2


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (candidates.ReduceOpsDiffer, ("all_reduce(max)", "all_reduce(sum)")),
        (candidates.ShapesDiffer, ("[1, 2, 3]", "[7]")),
        (candidates.OrdersDiffer, ("all_gather", "all_reduce(sum)")),
        (candidates.SplitsDiffer, ("rank 1 sends 6 elements to rank 0, which expects 3", "[3, 3]")),
    ],
)
def test_collectives_that_differ_are_found_at_once(
    gloo: Engine, cls: type, words: tuple[str, str]
) -> None:
    result = run(gloo, cls)
    found = next(m for m in result.mismatches if m.kind == "collective")
    assert all(word in detail(found)["reason"] for word in words)
    assert "candidates.py:" in detail(found)["reason"]  # the line of the candidate's code
    stacks = detail(found)["stacks"].items()
    assert {rank for rank, stack in stacks if "sum_output" in stack} == {"0", "1"}


@pytest.mark.parametrize(
    ("cls", "mesh"),
    [(candidates.GroupsDiffer, {"dp": 2, "tp": 2}), (candidates.TwinGroupsDiffer, {"tp": 2})],
)
def test_groups_that_differ_are_found_at_once(
    gloo: Engine, cls: type, mesh: dict[str, int]
) -> None:
    result = run(gloo, cls, mesh=mesh)
    found = next(m for m in result.mismatches if m.kind == "collective")
    reason = detail(found)["reason"]
    assert reason.startswith(f"rank {found.rank} waits in all_reduce(sum)")
    assert f"for rank {1 - found.rank}, which waits in all_reduce(sum)" in reason
    assert reason.endswith(f"for rank {found.rank}")
    assert reason.count("candidates.py:") == 2
    assert "sum_output" in detail(found)["stack"]


def test_a_circle_of_an_exchange_and_a_reduction_is_found_at_once(gloo: Engine) -> None:
    result = run(gloo, candidates.ExchangeOrReduction)
    found = next(m for m in result.mismatches if m.kind == "collective")
    reason = detail(found)["reason"]
    assert "waits in all_to_all" in reason and "waits in all_reduce(sum)" in reason
    assert "candidates.py:" in reason and "collectives.py:" in reason


def test_asynchronous_collectives_that_cross_are_no_mismatch(gloo: Engine) -> None:
    result = run(gloo, candidates.CrossingButAsynchronous)
    assert result.mismatches == []


def test_one_world_serves_every_mesh_in_any_order() -> None:
    meshes = [{"tp": 1}, {"dp": 2, "tp": 1}, {"tp": 2}, {"dp": 2, "tp": 2}, {"tp": 3}, {"tp": 4}]
    with Engine("gloo", 4, time_limit=10) as engine:
        for mesh in [*meshes, *reversed(meshes)]:
            result = run(engine, candidates.Row, mesh=mesh)
            assert result.verdict is Verdict.PASS, (mesh, result.mismatches)
        assert engine.starts == 1


def test_more_ranks_than_the_engine_has(gloo: Engine) -> None:
    with pytest.raises(EngineUnavailable, match="needs 8 ranks"):
        run(gloo, candidates.Row, mesh={"tp": 8})


def test_nccl_without_a_gpu_is_one_line() -> None:
    with pytest.raises(EngineUnavailable, match="no CUDA device"):
        Engine("nccl", 2)


def test_a_candidate_that_the_ranks_cannot_import(gloo: Engine) -> None:
    import types

    module = types.ModuleType("nowhere_to_be_found")
    exec("def build(case, mesh): ...", vars(module))
    sys.modules["nowhere_to_be_found"] = module
    try:
        runner = Runner(Check(candidates.check(candidates.Row).spec, module.build), gloo)
        with pytest.raises(InvalidArgument, match="can't import the candidate"):
            runner.run(candidates.CASE)
    finally:
        del sys.modules["nowhere_to_be_found"]


DRIVER = """
import sys, time
from tests import candidates
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
engine = Engine("gloo", 2)
runner = Runner(candidates.check(candidates.Row), engine)
runner.renew()
runner.run(candidates.CASE)
assert len(engine.world.processes) == 4, "zygote, template, two ranks"
print(engine.folder, *engine.world.processes, flush=True)
if sys.argv[1] == "busy":
    Runner(candidates.check(candidates.OneRankSpins), engine).run(candidates.CASE)
time.sleep(60)
"""


@pytest.mark.parametrize("state", [pytest.param("idle", marks=pytest.mark.sweep), "busy"])
def test_no_rank_outlives_a_driver_that_is_killed(state: str) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, state], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert driver.stdout is not None
    folder, *pids = driver.stdout.readline().split()
    time.sleep(1.0)
    assert all(_alive(int(pid)) for pid in pids)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(_alive(int(pid)) for pid in pids):
        time.sleep(0.05)
    assert not [pid for pid in pids if _alive(int(pid))]
    assert not Path(folder).exists()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_no_port_is_open_beyond_loopback(gloo: Engine) -> None:
    assert run(gloo, candidates.Row).verdict is Verdict.PASS
    for host in gloo.hosts:
        inodes = {
            os.readlink(fd).removeprefix("socket:[").rstrip("]")
            for fd in Path(f"/proc/{host.pid}/fd").iterdir()
            if os.readlink(fd).startswith("socket:")
        }
        for table in ("tcp", "tcp6"):
            rows = Path(f"/proc/{host.pid}/net/{table}").read_text().splitlines()[1:]
            for row in rows:
                local, state, inode = row.split()[1], row.split()[3], row.split()[9]
                if inode in inodes and state == "0A":  # listening
                    assert local.startswith(("0100007F", "0" * 24 + "01000000")), local


class ImportsAtLast(candidates.Row):
    """Imports a part of torch when it is built."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        importlib.import_module("torch.ao.pruning")


def is_there(mesh: Any) -> bool:
    return "torch.ao.pruning" in sys.modules


def test_what_ranks_import_of_torch_is_there_for_those_to_come() -> None:
    with Engine("gloo", 2) as engine:
        assert engine.call(is_there, mesh={"tp": 2}) == [False, False]
        assert run(engine, ImportsAtLast).verdict is Verdict.PASS
        engine.renew()
        assert engine.call(is_there, mesh={"tp": 2}) == [True, True]


def test_ranks_are_as_many_as_are_likely_to_be_needed_and_more_once_they_are() -> None:
    check = candidates.check(candidates.Row)
    with Engine("gloo", 4) as engine:
        runner = Runner(check, engine)
        for ranks, tp, up in ((2, 2, 2), (None, 2, 4), (2, 4, 4), (9, 2, 4)):
            runner.renew(ranks)
            case = replace(candidates.CASE, mesh={"tp": tp})
            assert runner.run(case).verdict is Verdict.PASS
            assert (len(engine.hosts), engine.ran) == (up, 1)
            assert runner.run(case).verdict is Verdict.PASS
            assert engine.ran == 2


def _looked_through(mesh: object) -> int:
    return len(gc.get_objects())


def test_what_is_there_before_a_case_is_not_looked_through_for_garbage_after_it() -> None:
    with Engine("gloo", 2) as engine:
        assert run(engine, candidates.Row, seed=1).verdict is Verdict.PASS
        assert min(engine.call(_looked_through, mesh={"tp": 2})) > 1000, "it has loaded this file"
        for seed in (2, 3):
            assert run(engine, candidates.Row, seed=seed).verdict is Verdict.PASS
        assert max(engine.call(_looked_through, mesh={"tp": 2})) < 1000
