"""Where two ranks enter a collective at different places of the code."""

from __future__ import annotations

import inspect
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tpcheck import Case, Check, Layout, Replicate, Spec
from tpcheck.causes.structure import GivenUp
from tpcheck.diagnosis import structure
from tpcheck.engines.engine import Engine
from tpcheck.evidence import Stuck
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult
from tpcheck.vocabulary import Impasse


class SkipsTheFirst(torch.nn.Linear):
    """Rank 1 leaves out the first of two collectives that are alike."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if dist.get_rank() == 0:
            dist.all_reduce(y.detach().clone())
        dist.all_reduce(y.detach().clone())
        return y


def run(engine: Engine, build: Any, case: Case) -> CaseResult:
    spec = Spec(
        name="two",
        cases=[case],
        reference=lambda case: torch.nn.Linear(4, 4),
        inputs=lambda case, draw: {"x": draw("x", 2, 4)},
        layout=lambda case: Layout(params={"*": Replicate()}),
    )
    return Runner(Check(spec, build), engine).run(case)


def test_a_collective_that_is_left_out_is_named_and_not_the_one_that_waits(gloo: Engine) -> None:
    result = run(gloo, lambda case, mesh: SkipsTheFirst(4, 4), Case(mesh={"tp": 2}))
    (hang,) = (m for m in result.mismatches if m.kind == "hang")
    assert isinstance(hang.detail, Stuck) and hang.detail.parted is not None
    first = inspect.getsourcelines(SkipsTheFirst)[1]
    lines = [entered.where for entered in hang.detail.parted]
    assert lines == [f"test_parted.py:{first + 6}", f"test_parted.py:{first + 7}"]


@pytest.mark.parametrize("busy", [False, True])
def test_each_rank_is_said_to_wait_for_the_one_that_it_waits_for(gloo: Engine, busy: bool) -> None:
    """Rank 0 has finished; 1 waits for it, 3 for 1, and 2 for 3; or 3 is at work."""

    def build(case: Case, mesh: Any) -> torch.nn.Module:
        class Chain(torch.nn.Linear):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                y, rank = super().forward(x), dist.get_rank()
                if busy and rank == 3:
                    time.sleep(20)
                elif rank:
                    axis = "pp" if rank == 3 else "tp"
                    dist.all_reduce(y.detach().clone(), group=mesh[axis].get_group())
                return y

        return Chain(4, 4)

    result = run(gloo, build, Case(mesh={"pp": 2, "tp": 2}))
    hangs = {m.rank: m.detail for m in result.mismatches if isinstance(m.detail, Stuck)}
    found = {rank: (stuck.why, stuck.peer) for rank, stuck in hangs.items()}
    assert found == {
        1: (Impasse.PEER_FINISHED, 0),
        2: (Impasse.PEER_ABSENT, 3),
        3: (Impasse.AT_WORK, None) if busy else (Impasse.PEER_ABSENT, 1),
    }
    named = structure.by_structure(result)
    assert named is not None and isinstance(named.cause, GivenUp) and named.cause.rank == 1
