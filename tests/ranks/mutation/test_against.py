"""Other rules beside ours: each sees what it should, and not what it can't."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fixtures.mutants import MUTANTS
from fixtures.mutants.build import column, row
from fixtures.parallel.linear import RowLinear
from properties import linear
from tests import candidates
from tests.candidates import linear_dims
from tpcheck import Check
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.mutation.against import against, alarmed, draw
from tpcheck.report import mutants as report
from tpcheck.runner.runner import Runner
from tpcheck.search.options import Options
from tpcheck.vocabulary import Rule

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
DIMS = linear_dims(8, 6, batch=2, seq=3, bias=True)
EVERY = set(Rule)


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
    assert alarmed(runner, Case(dims=DIMS, dtype="float64"), EVERY) == EVERY - unseen


def test_a_sum_loss_does_not_see_a_permuted_slice_of_a_row_linears_gradient(gloo: Engine) -> None:
    """The gradient of a plain sum is the same for every output: dw's rows are all alike."""

    class RowsRotated(RowLinear):
        def multiply(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.register_hook(lambda grad: grad.roll(1, 0))
            return super().multiply(x)

    runner = Runner(Check(row.spec, row.candidate(RowsRotated), name="rotated"), gloo)
    found = alarmed(runner, Case(dims=DIMS, dtype="float64"), EVERY)
    assert found == EVERY - {".sum() loss", "forward only"}


def test_a_correct_candidate_is_no_alarm_to_us_and_one_to_assert_close(gloo: Engine) -> None:
    runner = Runner(linear.row_linear.named("row_linear"), gloo)
    seen: set[str] = set()
    for case in draw(runner.check, gloo, Options(dtypes=("bfloat16",)), 12):
        seen |= alarmed(runner, case, EVERY)
    assert "assert_close" in seen
    assert not seen & {"tpcheck", "forward only", ".sum() loss"}


def test_a_rank_that_raises_is_seen_by_all(gloo: Engine) -> None:
    found = alarmed(
        Runner(candidates.check(candidates.OneRankRaises), gloo), candidates.CASE, EVERY
    )
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
        finished=lambda name, by: lines.append(report.missed(name, by)),
    )
    assert [line.split()[0] for line in lines] == list(names)
    assert "forward only" not in lines[0] and "missed by: forward only" in lines[1]
    assert found.killed(Rule.OURS) == 2 and found.killed(Rule.FORWARD_ONLY) == 1
    assert sum(found.correct.values()) == found.cases and set(found.candidates) == {
        "right",
        "right too",
    }
    assert not found.alarms[Rule.OURS]
    data = report.against_data(found)["rules"]["forward only"]
    assert data["missed"] == ["column_linear_without_backward_all_reduce"]
    table = report.against(found)
    assert "killed, of 2 mutants" in table and all(rule in table for rule in Rule)


def test_no_correct_candidate_to_compare_with(gloo: Engine) -> None:
    other = replace(column.spec, name="other")
    mutant = replace(BY_NAME["row_linear_averaged"], spec=other)
    with pytest.raises(InvalidArgument, match="no correct candidate of other"):
        against([mutant], [linear.row_linear], gloo, Options())


def stop(case: Case) -> None:
    raise SystemExit(0)


def test_what_can_not_run_is_told_and_the_others_go_on(gloo: Engine) -> None:
    mutant = BY_NAME["row_linear_averaged"]
    broken = replace(mutant, name="broken", spec=replace(mutant.spec, reference=stop))
    right = linear.row_linear.named("right")
    odd = Check(right.spec, right.candidate, name="odd", overrides={"reference": stop})
    options = Options(dtypes=("float64",), degrees=(2,))
    found = against([broken, mutant], [odd, right], gloo, options)
    assert set(found.kills) == {mutant.name} and set(found.candidates) == {"right"}
    assert set(found.troubled) == {"broken", "odd"} and "SystemExit" in found.troubled["odd"]
    assert set(report.against_data(found)["troubled"]) == {"broken", "odd"}
    assert "UNKNOWN broken" in report.against(found)
