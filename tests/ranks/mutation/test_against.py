"""Other rules beside ours: each sees what it should, and not what it can't."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fixtures.mutants import MUTANTS
from fixtures.mutants.build import column, row
from fixtures.parallel.linear import RowLinear
from properties import linear
from tpcheck import Check
from tpcheck.bounds import other_rules
from tpcheck.bounds.other_rules import RULES
from tpcheck.bounds.spread import Spread
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.mutation.against import against, draw, judge
from tpcheck.placement import Replicate
from tpcheck.protocol.problem import Target
from tpcheck.report import calibration
from tpcheck.runner.runner import Runner
from tpcheck.search.search import Options

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
DIMS = {"batch": 2, "seq": 3, "in_features": 8, "out_features": 6, "bias": True}
EVERY = set(RULES)


def target(own: torch.Tensor, value: torch.Tensor) -> Target:
    spread = Spread(torch.zeros_like(value), 1, 1)
    return Target("output", "output", Replicate(), own.dtype, value, spread, own=own)


def test_rules_on_one_tensor() -> None:
    value = torch.linspace(1.0, 2.0, 7, dtype=torch.float64)
    own = value.to(torch.bfloat16)
    about = target(own, value)
    assert other_rules.alarms(own, value, own, about) == set()
    slightly = (value * 1.02).to(torch.bfloat16)  # beyond 1.6 %, the default, and the roundings
    assert other_rules.alarms(slightly, value, own, about) == {"assert_close", "twice own error"}
    grossly = (value * 1.2).to(torch.bfloat16)
    every = {"assert_close", "twice own error", "frobenius 8.3 %"}
    assert other_rules.alarms(grossly, value, own, about) == every
    assert other_rules.alarms(None, value, own, about) == every
    assert other_rules.alarms(own[:3], value, own, about) == every
    assert other_rules.alarms(torch.full_like(own, torch.nan), value, own, about) == every
    assert other_rules.alarms(own.float(), value, own, about) == {"assert_close"}  # the dtype
    assert other_rules.alarms(own[:0], value[:0], own[:0], target(own[:0], value[:0])) == set()


def test_twice_own_error_is_of_the_full_tensor_and_its_roundings() -> None:
    value = torch.tensor([1.0, 1.0 + 2.0**-9], dtype=torch.float64)
    own = value.to(torch.bfloat16)
    rounding = float((own + 0.3 - 0.3 - own).abs().max())
    assert other_rules.twice_own_error(target(own, value)) == 2 * 2.0**-9 + 2 * rounding


@pytest.mark.parametrize(
    ("name", "unseen"),
    [
        ("row_linear_averaged", set()),
        # the output is right: only a backward shows it
        ("column_linear_without_backward_all_reduce", {"forward only"}),
        ("row_linear_reduced_twice", set()),
    ],
)
def test_a_mutant_under_every_rule(gloo: Engine, name: str, unseen: set[str]) -> None:
    runner = Runner(BY_NAME[name].check, gloo)
    assert judge(runner, Case(dims=DIMS, dtype="float64"), EVERY) == EVERY - unseen


def test_a_sum_loss_does_not_see_a_permuted_slice_of_a_row_linears_gradient(gloo: Engine) -> None:
    """The gradient of a plain sum is the same for every output: dw's rows are all alike."""

    class RowsRotated(RowLinear):
        def multiply(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.register_hook(lambda grad: grad.roll(1, 0))
            return super().multiply(x)

    runner = Runner(Check(row.spec, row.candidate(RowsRotated), name="rotated"), gloo)
    found = judge(runner, Case(dims=DIMS, dtype="float64"), EVERY)
    assert found == EVERY - {".sum() loss", "forward only"}


def test_a_correct_candidate_is_no_alarm_to_us_and_one_to_assert_close(gloo: Engine) -> None:
    runner = Runner(linear.row_linear.named("row_linear"), gloo)
    seen: set[str] = set()
    for case in draw(runner.check, gloo, Options(dtypes=("bfloat16",)), 12):
        seen |= judge(runner, case, EVERY)
    assert "assert_close" in seen
    assert not seen & {"tpcheck", "forward only", ".sum() loss"}


def test_a_rank_that_raises_is_seen_by_all(gloo: Engine) -> None:
    from tests import faulty

    found = judge(Runner(faulty.check(faulty.OneRankRaises), gloo), faulty.CASE, EVERY)
    assert found == EVERY


def test_side_by_side(gloo: Engine) -> None:
    names = ("row_linear_averaged", "column_linear_without_backward_all_reduce")
    correct = [linear.row_linear.named("right"), linear.column_linear.named("right too")]
    options = Options(dtypes=("float64",), degrees=(2,))
    lines: list[str] = []
    found = against(
        [BY_NAME[name] for name in names],
        correct,
        gloo,
        options,
        finished=lambda name, by: lines.append(calibration.missed(name, by)),
    )
    assert [line.split()[0] for line in lines] == list(names)
    assert "forward only" not in lines[0] and "missed by: forward only" in lines[1]
    assert found.killed("tpcheck") == 2 and found.killed("forward only") == 1
    assert sum(found.correct.values()) == found.cases and set(found.candidates) == {
        "right",
        "right too",
    }
    assert not found.alarms["tpcheck"]
    report = found.to_dict()["rules"]["forward only"]
    assert report["missed"] == ["column_linear_without_backward_all_reduce"]
    table = calibration.against(found)
    assert "killed, of 2 mutants" in table and all(rule in table for rule in RULES)


def test_no_correct_candidate_to_compare_with(gloo: Engine) -> None:
    other = replace(column.spec, name="other")
    mutant = replace(BY_NAME["row_linear_averaged"], spec=other)
    with pytest.raises(InvalidArgument, match="no correct candidate of other"):
        against([mutant], [linear.row_linear], gloo, Options())
