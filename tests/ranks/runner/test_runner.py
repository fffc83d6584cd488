"""What the screening suspects is judged again: right tensors are cleared, wrong ones are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fixtures.parallel.linear import RowLinear
from properties.block import stack
from properties.grad_norm import mlp_norm
from properties.linear import row_linear
from tests import candidates
from tpcheck import Check, Layout, Replicate, Spec
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.oracle.effort import CONFIRM, FLOOR, SCREEN, Effort
from tpcheck.oracle.pose import Posed, pose
from tpcheck.placement import take
from tpcheck.protocol import returned
from tpcheck.report.as_json import detail
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict
from tpcheck.vocabulary import Kind

LINEAR = Case(
    dims=candidates.linear_dims(8, 4, batch=2, seq=3, bias=True),
    dtype="bfloat16",
    mesh={"dp": 2, "tp": 2},
)
# A LayerNorm over two numbers that nearly agree: rounding turns the sign of what it returns.
TURNED = Case(
    dims=candidates.BLOCK | {
        "layers": 1, "batch": 1, "seq": 1, "hidden": 2, "kv_heads": 4, "intermediate": 4,
        "activation": "gelu", "norm": "layer", "rotary": False, "causal": False,
    },
    dtype="bfloat16",
    mesh={"tp": 4},
    seed=529,
)  # fmt: skip


@pytest.fixture
def efforts(monkeypatch: pytest.MonkeyPatch) -> list[Effort]:
    """The efforts that were made, where the first ones suspect everything that rounds."""
    made: list[Effort] = []

    def noted(posed: Posed) -> Posed:
        made.append(posed.effort)
        closely = posed.closely
        assert closely is not None
        return replace(posed, closely=lambda effort: noted(tight(closely(effort))))

    def strict(spec: Any, case: Case, effort: Effort | None = SCREEN, **more: Any) -> Posed:
        posed = noted(pose(spec, case, effort, **more))
        assert posed.effort is (FLOOR if effort is None else SCREEN)
        return tight(posed)

    def tight(posed: Posed) -> Posed:
        for problem in posed.problems if posed.effort in (FLOOR, SCREEN) else ():
            for i, target in enumerate(problem.targets):
                spread = replace(target.spread, sigma=target.spread.sigma / 100)
                problem.targets[i] = replace(target, spread=spread)
        return posed

    monkeypatch.setattr("tpcheck.runner.runner.pose", strict)
    return made


class Slightly(RowLinear):
    """One rank's partial sums are too large by a part in eight."""

    def sum_output(self, partial: torch.Tensor) -> torch.Tensor:
        return super().sum_output(partial * 1.125 if self.rank == 0 else partial)


def test_wrong_ones_are_not(threads: Engine, efforts: list[Effort]) -> None:
    runner = Runner(candidates.check(Slightly), threads)
    result = runner.run(LINEAR)
    assert CONFIRM in efforts and result.verdict is Verdict.FAIL
    wrong = {m.tensor for m in result.mismatches}
    assert "output" in wrong and not any("bias" in name for name in wrong)
    assert all(m.error > m.bound or "norm_error" in detail(m) for m in result.mismatches)


def test_right_tensors_under_suspicion_are_cleared_unless_a_run_may_leave_them_so(
    threads: Engine, efforts: list[Effort]
) -> None:
    runner, suspected = Runner(row_linear, threads), 0
    for seed in range(6):
        case = replace(LINEAR, seed=seed)
        result = runner.run(case, closely=False)
        assert result.suspected is (result.verdict is Verdict.FAIL)
        suspected += result.suspected
        result = runner.run(case)
        assert result.verdict is Verdict.PASS and 0 < result.usage <= 1 and not result.suspected
    assert suspected >= 3 and efforts.count(CONFIRM) >= 3
    assert not list(threads.folder.glob("*.suspects"))


def test_what_is_kept_of_a_gradient_is_what_was_compared(threads: Engine, tmp_path: Path) -> None:
    """Clipping writes into it afterwards."""
    dims = {"batch": 2, "seq": 3, "hidden": 4, "intermediate": 8, "activation": "gelu"}
    case = Case(dims=dims | {"norm": "layer", "residual": False, "bias": True}, mesh={"tp": 2})
    assert Runner(mlp_norm, threads).run(case, dump=tmp_path).verdict is Verdict.PASS
    kept, (problem,) = returned.read(tmp_path, 0), pose(mlp_norm.spec, case).problems
    assert kept is not None and problem.most[0] < float(kept["grad_norm/norm"])
    for target in problem.targets:
        if target.kind is Kind.PARAM_GRAD:
            own = take(target.value, target.entry, case=case, rank=0)
            torch.testing.assert_close(kept[f"param_grad/{target.name}"], own)


def test_far_from_its_bound_float64_needs_no_confirmation(
    threads: Engine, efforts: list[Effort]
) -> None:
    result = Runner(candidates.check(Slightly), threads).run(replace(LINEAR, dtype="float64"))
    assert CONFIRM not in efforts and result.verdict is Verdict.FAIL


def test_what_rounding_can_turn_over_is_not_judged_by_a_few_runs(threads: Engine) -> None:
    for seed in (529, *range(20)):
        assert Runner(stack, threads).run(replace(TURNED, seed=seed)).verdict is Verdict.PASS


class Centred(torch.nn.Module):
    """x [B, H] minus a running mean, which it moves as it goes."""

    def __init__(self, hidden: int, momentum: float = 0.25) -> None:
        super().__init__()
        self.momentum = momentum
        self.weight = torch.nn.Parameter(torch.empty(hidden))
        self.register_buffer("mean", torch.zeros(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x - self.mean) * self.weight
        self.mean = self.mean + self.momentum * (x.detach().mean(0) - self.mean)
        return y


@pytest.mark.parametrize(("momentum", "wrong"), [(0.25, set()), (0.125, {"mean"})])
@pytest.mark.parametrize("mesh", [{"tp": 2}, {"dp": 2, "tp": 2}], ids=str)
def test_what_a_forward_leaves_in_a_buffer_is_compared(
    threads: Engine, mesh: dict[str, int], momentum: float, wrong: set[str]
) -> None:
    spec = Spec(
        "centred",
        cases=[Case({"hidden": 4}, mesh=mesh)],
        reference=lambda case: Centred(case["hidden"]),
        inputs=lambda case, draw: {"x": draw("x", 3, case["hidden"])},
        layout=lambda case: Layout(params={"*": Replicate()}),
    )
    check = Check(spec, lambda case, mesh: Centred(case["hidden"], momentum))
    result = Runner(check, threads).run(Case({"hidden": 4}, mesh=mesh))
    assert {m.tensor for m in result.mismatches} == wrong


def test_replicas_that_differ_are_said_beside_values_that_are_wrong(threads: Engine) -> None:
    """Both are evidence of the same fault: neither hides the other."""
    from fixtures.mutants.reductions import MUTANTS

    mutant = next(m for m in MUTANTS if m.name == "row_linear_without_all_reduce")
    result = Runner(mutant.check, threads).run(Case(dims=candidates.linear_dims(2, 1, seq=1)))
    assert [(m.kind, m.rank) for m in result.mismatches] == [
        ("output", 0), ("output", 1), ("replica", 1)
    ]  # fmt: skip
