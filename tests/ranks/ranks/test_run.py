"""What a rank compares: everything that the reference has, whatever the candidate leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fixtures.compositions import moe, routed
from fixtures.mutants.exchanges import EveryExpertEverywhere
from fixtures.parallel.linear import ColumnLinear
from tests import commands
from tests.candidates import linear
from tpcheck import Case, Check, Layout, Partial, Replicate, Shard, Spec, specs
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.report.as_json import detail
from tpcheck.runner.runner import Runner
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CaseResult, CheckResult

CASE = Case(dims={"n": 4}, mesh={"tp": 2})


def run(engine: Engine, reference: Callable[[], Any], candidate: Callable[[], Any]) -> CaseResult:
    spec = Spec(
        name="plain",
        cases=[CASE],
        reference=lambda case: reference(),
        inputs=lambda case, draw: {"x": draw("x", 2, 4)},
        layout=lambda case: Layout(params={"*": Replicate()} if _has_params(reference()) else {}),
    )
    return Runner(Check(spec, lambda case, mesh: candidate()), engine).run(CASE)


def _has_params(module: Any) -> bool:
    return isinstance(module, nn.Module) and any(True for _ in module.parameters())


def wrong(result: CaseResult) -> set[tuple[str, str]]:
    return {(m.kind, m.tensor) for m in result.mismatches}


class Halved(nn.Linear):
    """Its weight's gradient is half of what it should be."""

    def forward(self, x: Tensor) -> Tensor:
        weight = 0.5 * self.weight + 0.5 * self.weight.detach()
        return nn.functional.linear(x, weight, self.bias)


@pytest.mark.parametrize(("candidate", "found"), [(nn.Linear, False), (Halved, True)])
def test_no_step_is_taken_by_gradients_that_are_terms_of_a_sum(
    gloo: Engine, candidate: type[nn.Linear], found: bool
) -> None:
    spec = Spec(
        name="left",
        cases=[replace(CASE, step=True)],
        reference=lambda case: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)),
        inputs=lambda case, draw: {"x": draw("x", 2, 4)},
        layout=lambda case: Layout(
            params={"*": Replicate()},
            inputs={"x": Shard(0)},
            outputs={"output": Shard(0)},
            grads={"0.*": Partial(), "1.*": Partial()},
        ),
    )
    check = Check(spec, lambda case, mesh: nn.Sequential(candidate(4, 4), nn.Linear(4, 4)))
    result = Runner(check, gloo).run(replace(CASE, step=True))
    assert wrong(result) == ({("param_grad", "0.weight")} if found else set())


def frozen_column(case: Case, mesh: Any) -> Any:
    column: Any = linear(ColumnLinear)(case, mesh)
    return column.requires_grad_(False)


def test_frozen_parameters_have_no_gradient_and_that_is_a_mismatch(gloo: Engine) -> None:
    result: CheckResult = Search(
        Check(specs.column_linear(), frozen_column), gloo, Options(corpus=None)
    ).run()
    assert result.counterexample is not None
    assert result.counterexample.diagnosis.code == "gradient-dropped"


class Nested(nn.Module):
    def __init__(self, aux: float) -> None:
        super().__init__()
        self.aux = aux

    def forward(self, x: Tensor) -> Any:
        return x * 1, (x + 1, {"aux": x.sum() * self.aux})


def test_nested_outputs_are_compared(gloo: Engine) -> None:
    assert not run(gloo, lambda: Nested(1.0), lambda: Nested(1.0)).mismatches
    found = run(gloo, lambda: Nested(1.0), lambda: Nested(2.0))
    assert ("output", "output.1.1.aux") in wrong(found)


class Twin(nn.Module):
    """Returns two tensors."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, 2 * x


def test_outputs_under_other_names_are_named(gloo: Engine) -> None:
    found = run(gloo, nn.Identity, Twin).mismatches
    assert {m.kind for m in found} == {"output"}
    for mismatch in found:
        assert detail(mismatch)["returned"] == ["output.0", "output.1"]
        assert detail(mismatch)["wanted"] == ["output"]


class Pooler(nn.Module):
    """Has a layer that nothing uses."""

    def __init__(self, *, uses: bool = False) -> None:
        super().__init__()
        self.used, self.idle, self.uses = nn.Linear(4, 4), nn.Linear(4, 4), uses

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x) + (self.idle(x) - self.idle(x).detach() if self.uses else 0)


def test_a_parameter_that_the_reference_does_not_use_needs_no_gradient(gloo: Engine) -> None:
    assert not run(gloo, Pooler, Pooler).mismatches
    assert ("param_grad", "idle.weight") in wrong(run(gloo, Pooler, lambda: Pooler(uses=True)))
    # the twin: one that the reference uses must have one
    assert ("param_grad", "idle.weight") in wrong(run(gloo, lambda: Pooler(uses=True), Pooler))


def test_integer_outputs_alone_are_compared(gloo: Engine) -> None:
    def largest(x: Tensor) -> Tensor:
        return x.argmax(-1)

    def smallest(x: Tensor) -> Tensor:
        return x.argmin(-1)

    assert not run(gloo, lambda: largest, lambda: largest).mismatches
    assert wrong(run(gloo, lambda: largest, lambda: smallest)) == {("output", "output")}


def test_what_a_spec_raises_is_one_line(gloo: Engine) -> None:
    def broken() -> Any:
        raise TypeError("no such option")

    with pytest.raises(InvalidArgument, match="raised TypeError: no such option at test_run"):
        run(gloo, broken, broken)


SCRIPT = """
import tpcheck
from fixtures.parallel.linear import RowLinear
from tpcheck import specs

class Unreduced(RowLinear):
    def sum_output(self, partial):
        return partial

def build(case, mesh):
    group = mesh["tp"].get_group()
    return Unreduced(case["in_features"], case["out_features"], group=group, bias=case["bias"])

wrong = tpcheck.Check(specs.row_linear(), candidate=build)
try:
    tpcheck.verify(wrong, examples=4)
except tpcheck.CheckFailed as error:
    print(error)
"""


def test_a_script_that_verifies_when_imported_starts_no_ranks_in_ranks(tmp_path: Path) -> None:
    """Each rank imports the file; an engine in each, and so on, would never end."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = commands.ran(["verify", "script.py", "--examples", "4"], tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "can't be started inside a rank" in done.stderr
    assert "Traceback" not in done.stderr


def test_experts_that_ep_did_not_cut_are_whole_whatever_fsdp_cuts(gloo: Engine) -> None:
    """A DTensor over dp says nothing of ep: its own shape must be the layout's part along ep."""
    case = Case(
        dims={"batch": 2, "hidden": 2, "intermediate": 1, "experts": 4},
        mesh={"dp": 2, "ep": 2, "tp": 1},
    )
    assert Runner(Check(routed.spec, routed.candidate), gloo).run(case).mismatches == []
    spec = replace(routed.spec, finalize=None)
    result = Runner(
        Check(spec, lambda case, mesh: routed.candidate(case, mesh, EveryExpertEverywhere)), gloo
    ).run(case)
    found = {m.tensor: detail(m) for m in result.mismatches if m.kind == "sharding"}
    assert {"mlp.up", "mlp.down"} == set(found)
    assert found["mlp.up"]["fault"] == "whole" and "ep" in found["mlp.up"]["axes"]


@pytest.mark.parametrize(("experts", "fault", "axes"), [(4, "whole", "ep"), (3, "shape", None)])
def test_what_is_cut_along_one_axis_and_not_along_the_other_is_whole_there(
    gloo: Engine, experts: int, fault: str, axes: str | None
) -> None:
    case = Case(
        dims={"batch": 2, "hidden": 2, "intermediate": 2, "experts": 4}, mesh={"ep": 2, "tp": 2}
    )

    def build(case: Case, mesh: Any) -> nn.Module:
        module = moe.candidate(case, mesh)
        module.up = nn.Parameter(torch.empty(experts, 1, 2))  # of 4, and 1 of 2 columns
        return module

    found = Runner(Check(moe.spec, build), gloo).run(case).mismatches
    up = next(detail(m) for m in found if (m.kind, m.tensor) == ("sharding", "up"))
    assert (up["fault"], up.get("axes")) == (fault, axes)
