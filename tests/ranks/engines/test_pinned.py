"""Which processors ranks run on."""

from __future__ import annotations

import os
from typing import Any

import pytest
from torch import Tensor

from tpcheck import Argument, Case, kernel_check
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict

HERE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def times_processors(x: Tensor) -> Tensor:
    return x * len(os.sched_getaffinity(0))


def runner(processors: int, engine: Engine) -> Runner:
    about: dict[str, Any] = {"arguments": {"x": Argument("n")}, "degrees": (1, 2)}
    check = kernel_check(times_processors, reference=lambda x: processors * x, **about)
    return Runner(check, engine)


@pytest.mark.skipif(HERE < 2, reason="with one processor, or none to pin to, both are the same")
def test_several_ranks_keep_to_one_each_and_a_single_one_goes_where_there_is_room(
    gloo: Engine,
) -> None:
    ranks = {1: runner(HERE, gloo), 2: runner(1, gloo)}
    for degree in (1, 2, 2, 1, 2):
        result = ranks[degree].run(Case(dims={"n": 3}, mesh={"tp": degree}))
        assert result.verdict is Verdict.PASS and not result.left
