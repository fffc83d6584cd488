"""What a candidate leaves behind in a rank changes no other's verdict, in either direction."""

from __future__ import annotations

import builtins
import gc
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from fixtures.parallel.linear import RowLinear
from tests import candidates
from tests.candidates import CASE, check
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.errors import CaseError
from tpcheck.layout import Layout
from tpcheck.process import heap
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind


class Unreduced(RowLinear):
    """Wrong: the all-reduce is missing."""

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        return partial


class Unwritten(RowLinear):
    """Wrong, which only the poison of unwritten memory shows: so much comes as zeros."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.empty(heap.KEPT + 1, dtype=torch.uint8)[0].to(x.dtype)


class Leaves(RowLinear):
    """Correct, and leaves something behind."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        self.leave()
        return y

    def leave(self) -> None:
        """Nothing."""


def leaver(leave: Callable[[], object]) -> type:
    return type("Leaver", (Leaves,), {"leave": lambda self: leave()})


def replaced(*args: Any, **kwargs: Any) -> None:
    """In place of a function of torch's."""


#: Seconds after which some of them act: the case is over then, on a busy machine, too.
LATER = 0.5


def later(act: Callable[[], object]) -> None:
    threading.Timer(LATER, act).start()


def few_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, hard))


KEPT: list[object] = []

LEAVERS: dict[str, tuple[str, Callable[[], object]]] = {
    "no poison": (
        "torch.use_deterministic_algorithms",
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "no gradients": ("torch.is_grad_enabled", lambda: torch.set_grad_enabled(False)),
    "default dtype": ("torch.get_default_dtype", lambda: torch.set_default_dtype(torch.float16)),
    "default device": ("torch.get_default_device", lambda: torch.set_default_device("meta")),
    "autocast": (
        "torch.is_autocast_enabled('cpu')",
        lambda: torch.set_autocast_enabled("cpu", True),
    ),
    "hook": (
        "torch.nn.modules.module._global_forward_hooks",
        lambda: nn.modules.module.register_module_forward_hook(lambda m, given, y: 2 * y),
    ),
    "all_reduce": (
        "torch.distributed.all_reduce",
        lambda: setattr(dist, "all_reduce", replaced),
    ),
    "linear": (
        "torch.nn.functional.linear",
        lambda: setattr(F, "linear", lambda x, w, b=None: 2 * (x @ w.mT)),
    ),
    "files": ("resource.getrlimit", few_files),
    "coalescing": (
        "torch.distributed._coalescing_manager",
        lambda: dist.distributed_c10d._world.pg_coalesce_state.setdefault(dist.group.WORLD, []),
    ),
    "names of groups": (
        "the tables of torch.distributed",
        lambda: torch._C._distributed_c10d._unregister_process_group(dist.group.WORLD.group_name),
    ),
    "dispatch keys": (
        "a guard of dispatch keys",
        lambda: KEPT.append(torch._C._AutoDispatchBelowAutograd()),
    ),
    "alarm": ("signal.getitimer", lambda: signal.alarm(1000)),
    "exit": ("threading.enumerate", lambda: later(lambda: os._exit(3))),
    "stop": (
        "threading.enumerate",
        lambda: later(lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    ),
}


def run(cls: type, engine: Engine) -> CaseResult:
    return Runner(check(cls), engine).run(CASE)


def others_are_as_they_are(engine: Engine) -> None:
    assert run(RowLinear, engine).verdict is Verdict.PASS
    for wrong in (Unreduced, Unwritten):
        assert Kind.OUTPUT in {m.kind for m in run(wrong, engine).mismatches}


@pytest.mark.parametrize("what", LEAVERS)
def test_what_is_left_behind_changes_no_verdict(gloo: Engine, what: str) -> None:
    name, leave = LEAVERS[what]
    first = run(leaver(leave), gloo)
    assert first.verdict is Verdict.PASS and name in {left.name for left in first.left}
    time.sleep(2 * LATER * (what in ("exit", "stop")))
    others_are_as_they_are(gloo)


class TakesAway:
    """Takes a function of Python's away when it goes."""

    def __del__(self) -> None:
        del builtins.len  # type: ignore[attr-defined]


class TakesAwayAtTheEnd(RowLinear):
    """Correct."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__["at_end"] = TakesAway()


def test_what_is_taken_away_when_the_candidate_goes_is_there_again(gloo: Engine) -> None:
    first = run(TakesAwayAtTheEnd, gloo)
    assert first.verdict is Verdict.PASS, first.mismatches
    assert [left.name for left in first.left] == ["builtins.len"]
    others_are_as_they_are(gloo)


class TakesAwayLate(RowLinear):
    """Correct; what it leaves is in a circle that has been looked through by then."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        taker = TakesAway()
        taker.itself = taker  # type: ignore[attr-defined]
        self.__dict__["at_end"] = taker
        gc.collect()


def test_what_is_in_a_circle_goes_in_its_own_case(gloo: Engine) -> None:
    first = run(TakesAwayLate, gloo)
    assert first.verdict is Verdict.PASS, first.mismatches
    assert [left.name for left in first.left] == ["builtins.len"]
    others_are_as_they_are(gloo)


def test_groups_that_were_destroyed_are_there_again(gloo: Engine) -> None:
    class Destroys(Leaves):
        def finalize(self) -> None:
            dist.destroy_process_group()

    destroys = candidates.check(Destroys)
    spec = {"finalize": lambda module, mesh: module.finalize()}
    first = Runner(replace(destroys, overrides=spec), gloo).run(CASE)
    assert first.verdict is Verdict.PASS
    assert [(left.name, left.restored) for left in first.left] == [
        ("torch.distributed.destroy_process_group", False)
    ]
    others_are_as_they_are(gloo)


@pytest.mark.parametrize("what", LEAVERS)
def test_what_is_left_behind_where_ranks_are_threads(threads: Engine, what: str) -> None:
    name, leave = LEAVERS[what]
    first = run(leaver(leave), threads)
    assert first.verdict is Verdict.PASS and name in {left.name for left in first.left}
    time.sleep(2 * LATER * (what in ("exit", "stop")))
    others_are_as_they_are(threads)


def test_the_poison_is_spread_again_where_build_has_switched_it_off(gloo: Engine) -> None:
    class Unpoisoned(Unwritten):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            torch.use_deterministic_algorithms(False)

    found = run(Unpoisoned, gloo)
    assert Kind.OUTPUT in {mismatch.kind for mismatch in found.mismatches}
    told = {(left.name, left.restored) for left in found.left}
    assert told == {("torch.use_deterministic_algorithms", True)}


@pytest.mark.parametrize("kind", ["gloo", "threads"])
def test_what_is_noted_on_the_mesh_is_gone_in_the_next_case(
    kind: str, request: pytest.FixtureRequest
) -> None:
    engine: Engine = request.getfixturevalue(kind)
    engine.start()
    assert engine.call(noted, mesh={"tp": 2}) == [False, False]
    assert engine.call(noted, mesh={"tp": 2}) == [False, False]


def noted(mesh: Any) -> bool:
    """Whether a mesh has been changed; changes it."""
    found = hasattr(mesh, "noted") or bool(mesh._flatten_mapping) or bool(mesh.mesh[0] == 7)
    mesh.noted, mesh._flatten_mapping["flat"] = True, mesh
    mesh._rank_map.fill_(7)
    return found


def test_the_twin_without_a_guard_both_directions_go_wrong(gloo: Engine) -> None:
    """The same leavings within one case: nothing restores them there."""

    class Poisoned(Unwritten):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.use_deterministic_algorithms(False)
            return super().forward(x)

    class Gradless(RowLinear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.set_grad_enabled(False)
            return super().forward(x)

    assert run(Poisoned, gloo).verdict is Verdict.PASS
    assert run(Gradless, gloo).verdict is Verdict.FAIL
    others_are_as_they_are(gloo)


def test_modules_of_a_reference_are_no_longer_changed_in_the_driver(gloo: Engine) -> None:
    def reference(case: Any) -> nn.Module:
        torch.set_default_dtype(torch.float16)
        os.environ["TPCHECK_LEFT"] = "1"
        return nn.Linear(case["in_features"], case["out_features"], bias=case["bias"])

    given = replace(check(RowLinear), overrides={"reference": reference})
    found = Runner(given, gloo).run(CASE)
    assert torch.get_default_dtype() is torch.float32
    assert {(left.name, left.driver, left.restored) for left in found.left} == {
        ("torch.get_default_dtype", True, True),
        ("os.environ", True, True),
    }


def test_what_posing_the_next_case_changes_is_that_case_s(gloo: Engine) -> None:
    after = replace(CASE, seed=CASE.seed + 1)

    def layout(case: Case) -> Layout:
        if case == after:
            os.environ["TPCHECK_LEFT"] = "1"
        return right.spec.layout(case)

    right = check(RowLinear)
    runner = Runner(replace(right, spec=replace(right.spec, layout=layout)), gloo)
    runner.run(CASE)  # what it imports may set the environment
    first, second = runner.run(CASE, then=after), runner.run(after)
    assert (first.verdict, first.left) == (Verdict.PASS, [])
    assert second.verdict is Verdict.PASS
    assert [(left.name, left.driver) for left in second.left] == [("os.environ", True)]


def test_a_next_case_that_can_not_be_posed_costs_this_one_nothing(gloo: Engine) -> None:
    after = replace(CASE, seed=CASE.seed + 1)
    right = check(RowLinear)
    odd = replace(right.spec, requires=lambda case: "not this one" if case == after else None)
    runner = Runner(replace(right, spec=odd), gloo)
    assert runner.run(CASE, then=after).verdict is Verdict.PASS
    with pytest.raises(CaseError, match="not this one"):
        runner.run(after)
