"""What becomes of suspects under the bounds of more runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.unit.runner.test_second_look import suspected
from tpcheck import Replicate
from tpcheck.case import Case
from tpcheck.oracle.effort import CLOSER, CONFIRM, Effort
from tpcheck.oracle.pose import Posed
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Problem
from tpcheck.protocol.returned import file_of
from tpcheck.runner.looked_at import looked_at
from tpcheck.runner.second_look import FAR, look_again
from tpcheck.tensors.names import Key
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind


@pytest.mark.parametrize(
    ("overflowed", "left"),
    [({0}, []), ({1}, []), ({2}, ["w.exp_avg_sq@step2"]), ((), ["w.exp_avg_sq@step2"])],
)
def test_what_a_step_leaves_that_may_overflow_is_not_compared(
    overflowed: set[int], left: list[str], tmp_path: Path
) -> None:
    """Fewer runs have not shown that it may; steps count from 0."""
    name, kind = "w.exp_avg_sq@step2", Kind.OPTIMIZER_STATE
    report = RankReport(0, [Mismatch(name, kind, 0, (0,), 0.0, 5.0, 5.0, 1.0)])
    report.suspects = {(kind, name): Replicate()}
    save_file({str(Key(kind, name)): torch.ones(1)}, file_of(tmp_path, 0))
    posed = Posed(Case(dtype="float16"), [Problem()], {}, {}, {}, overflowed=frozenset(overflowed))
    assert [m.tensor for m in looked_at(posed, report, tmp_path)[0]] == left


@pytest.mark.parametrize(("times", "made"), [(0.9 * FAR, [CLOSER, CONFIRM]), (1.1 * FAR, [CLOSER])])
def test_what_is_near_the_bounds_of_few_runs_is_held_against_those_of_many(
    times: float, made: list[Effort], tmp_path: Path
) -> None:
    posed, report = suspected("float32", integer=False, error=5.0, bound=1.0)
    save_file({str(Key(Kind.OUTPUT, "y")): torch.full((2,), 5.0)}, file_of(tmp_path, 0))
    asked: list[Effort] = []

    def closely(effort: Effort, steps: int) -> Posed:
        asked.append(effort)
        (target,) = posed.problems[0].targets
        spread = target.spread
        sigma = torch.full((2,), 5.0 / times / spread.elementwise_limit(2), dtype=torch.float64)
        near = replace(target, spread=replace(spread, sigma=sigma, norm_samples=1))
        problem = replace(posed.problems[0], targets=[near])
        return replace(posed, problems=[problem], effort=effort)

    look_again(closely, [report], tmp_path)
    assert asked == made and report.mismatches
