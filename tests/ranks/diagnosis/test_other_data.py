"""What depends on the numbers at hand is not put down to other ranks, or to earlier passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from fixtures.parallel.linear import ColumnLinear, RowLinear
from tests.ranks.diagnosis.test_examine import examined
from tpcheck import Case, Check, Layout, Shard, Spec
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind

Activate = Callable[[Tensor], Tensor]
SIZES = {"batch": 1, "hidden": 3, "inner": 4}


class Both(nn.Module):
    def __init__(self, up: nn.Module, down: nn.Module, activate: Activate) -> None:
        super().__init__()
        self.up, self.down, self.activate = up, down, activate

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.down(self.activate(self.up(x)))
        return hidden


def check(right: Activate, wrong: Callable[[int], Activate]) -> Check:
    """Two linear layers; `wrong` is of a rank of tp."""

    def reference(case: Case) -> nn.Module:
        n, m = case["hidden"], case["inner"]
        return Both(nn.Linear(n, m, bias=False), nn.Linear(m, n, bias=False), right)

    def candidate(case: Case, mesh: Any) -> nn.Module:
        n, m, group = case["hidden"], case["inner"], mesh["tp"].get_group()
        up = ColumnLinear(n, m, bias=False, group=group)
        return Both(up, RowLinear(m, n, bias=False, group=group), wrong(group.rank()))

    spec = Spec(
        name="both",
        cases=[Case(SIZES)],
        reference=reference,
        inputs=lambda case, draw: {"x": draw("x", case["batch"], case["hidden"])},
        layout=lambda _: Layout(params={"up.weight": Shard(0), "down.weight": Shard(1)}),
    )
    return Check(spec, candidate=candidate)


def on_every_rank(activate: Activate) -> Callable[[int], Activate]:
    return lambda _: activate


#: Wrong where a number is large.
CLAMPED = check(F.relu, on_every_rank(lambda x: x.clamp(0, 2.0)))


def wrong_in(
    runner: Runner, case: Case, asked: Callable[[CaseResult], bool], *, seed: int
) -> CaseResult:
    """The first case, of those with other numbers, that is: such a one is rare.

    Args:
        seed: to begin with.
    """
    results = (runner.run(replace(case, seed=seed + more)) for more in range(200))
    return next(result for result in results if result.mismatches and asked(result))


def test_other_numbers_of_a_dp_coordinate_are_not_another_group(gloo: Engine) -> None:
    def in_the_second_alone(found: CaseResult) -> bool:
        outputs = [m for m in found.mismatches if m.kind is Kind.OUTPUT]
        return {found.case.coordinates(m.rank)["dp"] for m in outputs} == {1}

    runner = Runner(CLAMPED, gloo)
    case = Case(SIZES, mesh={"dp": 2, "tp": 2}, dtype="float64")
    found = wrong_in(runner, case, in_the_second_alone, seed=46)
    assert runner.run(replace(found.case, mesh={"tp": 2})).verdict is Verdict.PASS
    assert examine_failure(runner, found).diagnosis.code == "unclassified"


def test_other_numbers_after_a_step_are_not_old_ones(gloo: Engine) -> None:
    def after_the_step_alone(found: CaseResult) -> bool:
        return {m.tensor for m in found.mismatches} == {"output@step"}

    runner = Runner(CLAMPED, gloo)
    case = Case(SIZES, mesh={"tp": 2}, dtype="float64", step=True)
    found = wrong_in(runner, case, after_the_step_alone, seed=166)
    assert examine_failure(runner, found).diagnosis.code == "unclassified"


def test_a_part_that_is_zero_is_not_a_term_of_a_sum(gloo: Engine) -> None:
    """Inside a module, where each rank has a part of its own: two of them are no replicas."""
    zeroed = check(F.gelu, lambda rank: F.gelu if rank == 0 else lambda x: F.gelu(x) * 0)
    found = examined(zeroed, Case(SIZES, mesh={"tp": 2}, dtype="float64"), gloo)
    assert found.diagnosis.code == "unwritten-memory"
    assert found.diagnosis.message.startswith("input of down is zero on ranks [1]")


def test_an_activation_that_is_zero_by_itself_is_no_memory_that_was_not_written(
    gloo: Engine,
) -> None:
    """Of few elements all may be below a threshold; so they are on one rank, too."""

    small = check(F.gelu, on_every_rank(lambda x: F.gelu(x) * (x.abs() > 0.5)))
    case = Case(SIZES | {"inner": 2}, mesh={"tp": 2}, dtype="float64")
    runner, told = Runner(small, gloo), set()
    for seed in range(12):
        found = runner.run(replace(case, seed=seed))
        if found.mismatches:
            told.add(examine_failure(runner, found).diagnosis.code)
    assert told == {"unclassified"}
