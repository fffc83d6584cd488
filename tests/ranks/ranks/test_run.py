"""What a rank compares: everything that the reference has, whatever the candidate leaves out."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from fixtures.compositions import moe, routed
from fixtures.mutants.exchanges import EveryExpertEverywhere
from fixtures.parallel.linear import ColumnLinear
from tests import ROOT
from tpcheck import Case, Check, Layout, Replicate, Spec, specs
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.placement import Only
from tpcheck.runner.runner import Runner
from tpcheck.search.search import Options, Search
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


def frozen_column(case: Case, mesh: Any) -> ColumnLinear:
    group = mesh["tp"].get_group()
    module = ColumnLinear(case["in_features"], case["out_features"], group=group, bias=case["bias"])
    return module.requires_grad_(False)


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
        assert mismatch.detail["returned"] == ["output.0", "output.1"]
        assert mismatch.detail["wanted"] == ["output"]


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

    with pytest.raises(InvalidArgument, match="raised TypeError: no such option at test_rank"):
        run(gloo, broken, broken)


STAGES = Case(dims={"n": 4}, mesh={"pp": 2, "tp": 1}, microbatches=3, step=True)


class Two(nn.Module):
    """x [2, 4] through two linears, of which a stage has one."""

    def __init__(self, names: str = "ab") -> None:
        super().__init__()
        for name in names:
            setattr(self, name, nn.Linear(4, 4, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


class Stages(Two):
    """The first linear on the first rank, the second on the second."""

    held = ("a", "b")

    def __init__(self, mesh: Any) -> None:
        self.rank = mesh["pp"].get_local_rank()
        super().__init__(self.held[self.rank])

    def forward(self, *x: Tensor) -> Any:
        if self.rank == 0:
            dist.send(self.a(*x), 1)
            return {}
        received = torch.empty(2, 4, dtype=torch.float64)
        dist.recv(received, 0)
        return self.b(received)

    def run(self, inputs: Any, cotangents: Any) -> list[Any]:
        return [self.one(*both) for both in zip(inputs, cotangents, strict=True)]

    def one(self, inputs: Any, cotangents: Any) -> Any:
        there = torch.empty(2, 4, dtype=torch.float64)
        if self.rank == 0:
            h = self.a(inputs["x"])
            dist.send(h, 1)
            dist.recv(there, 1)
            h.backward(there)
            return self.first(h)
        dist.recv(there, 0)
        y = self.b(there.requires_grad_())
        y.backward(cotangents["output"])
        assert there.grad is not None
        dist.send(there.grad, 0)
        return self.last(y)

    def first(self, h: Tensor) -> Any:
        return {}

    def last(self, y: Tensor) -> Any:
        return y


def run_stages(engine: Engine, cls: type[Stages] = Stages) -> CaseResult:
    def layout(case: Case) -> Layout:
        return Layout(
            params={"a.weight": {"pp": Only(0)}, "b.weight": {"pp": Only(1)}},
            inputs={"x": {"pp": Only(0)}},
            outputs={"output": {"pp": Only(1)}},
        )

    spec = Spec(
        name="stages",
        cases=[STAGES],
        reference=lambda case: Two(),
        inputs=lambda case, draw: {"x": draw("x", 2, 4)},
        layout=layout,
    )
    schedule = lambda module, inputs, cotangents: module.run(inputs, cotangents)  # noqa: E731
    return Runner(Check(spec, lambda case, mesh: cls(mesh), schedule=schedule), engine).run(STAGES)


def test_every_rank_is_asked_for_what_its_stage_has_and_for_nothing_else(gloo: Engine) -> None:
    result = run_stages(gloo)
    assert not result.mismatches
    ops = [
        [(e["op"], e["peer"]) for e in rank if e["phase"] == "schedule"] for rank in result.trace
    ]
    assert ops == [[("send", 1), ("recv", 1)] * 3, [("recv", 0), ("send", 0)] * 3]


def test_a_gradient_of_each_stage_is_compared(gloo: Engine) -> None:
    class Doubled(Stages):
        def first(self, h: Tensor) -> Any:
            self.a.weight.grad *= 2
            return {}

        def last(self, y: Tensor) -> Any:
            self.b.weight.grad *= 2
            return y

    grads = {(m.tensor, m.rank) for m in run_stages(gloo, Doubled).mismatches if "grad" in m.kind}
    assert grads == {("a.weight", 0), ("b.weight", 1)}


def test_a_parameter_that_its_stage_lacks_is_missing_and_one_too_many_is_elsewhere(
    gloo: Engine,
) -> None:
    class Exchanged(Stages):
        held = ("b", "a")

    class Both(Stages):
        held = ("ab", "b")

    def faults(cls: type[Stages]) -> set[tuple[str, str, int]]:
        found = [m for m in run_stages(gloo, cls).mismatches if m.kind == "sharding"]
        return {(m.tensor, m.detail["fault"], m.rank) for m in found}

    assert faults(Both) == {("b.weight", "elsewhere", 0)}
    assert faults(Exchanged) == {
        ("a.weight", "missing", 0),
        ("b.weight", "elsewhere", 0),
        ("a.weight", "elsewhere", 1),
        ("b.weight", "missing", 1),
    }


def test_an_output_of_another_stage_than_the_last_is_a_mismatch(gloo: Engine) -> None:
    class Early(Stages):
        def first(self, h: Tensor) -> Any:
            return h

    found = run_stages(gloo, Early).mismatches
    assert {(m.kind, m.tensor, m.rank) for m in found} == {
        ("output", name, 0) for name in ("output", "output@1", "output@2")
    }
    assert found[0].detail["elsewhere"] == (
        "is on the ranks of pp=0; the layout has it on those of pp=1 only"
    )


def test_a_schedule_that_loses_a_microbatch_is_named(gloo: Engine) -> None:
    class Fewer(Stages):
        def run(self, inputs: Any, cotangents: Any) -> list[Any]:
            return super().run(inputs, cotangents)[:2]

    class Nothing(Stages):
        def run(self, inputs: Any, cotangents: Any) -> Any:
            super().run(inputs, cotangents)

    for cls, given in ((Fewer, "a list of 2"), (Nothing, "a NoneType")):
        found = run_stages(gloo, cls).mismatches
        assert {m.kind for m in found} == {"exception"}
        assert f"schedule returned {given} for 3 microbatches" in found[0].detail["reason"]


def test_a_message_that_nobody_receives_is_a_mismatch(gloo: Engine) -> None:
    class Talkative(Stages):
        def forward(self, *x: Tensor) -> Any:
            found = super().forward(*x)
            if self.rank == 0:
                dist.isend(torch.ones(2, 4, dtype=torch.float64), 1)
            return found

    (lost,) = run_stages(gloo, Talkative).mismatches
    assert (lost.kind, lost.tensor, lost.rank) == ("collective", "messages", 1)
    assert lost.detail["reason"] == "rank 0 sent 5 messages to rank 1, which received 4"
    assert not run_stages(gloo).mismatches  # none is left over for the next case


def test_a_rank_that_waits_for_a_message_that_never_comes_is_seen_at_once(gloo: Engine) -> None:
    class Silent(Stages):
        def run(self, inputs: Any, cotangents: Any) -> list[Any]:
            return [{}] * 3 if self.rank == 0 else super().run(inputs, cotangents)

        def forward(self, *x: Tensor) -> Any:
            return {}

    start = time.monotonic()
    found = run_stages(gloo, Silent).mismatches
    assert [(m.kind, m.rank) for m in found if m.kind == "hang"] == [("hang", 1)]
    (hang,) = (m for m in found if m.kind == "hang")
    assert "finished without" in hang.detail["reason"] and "recv" in hang.detail["last"][-1]
    assert time.monotonic() - start < 15  # of the 20 s that a case may take


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
    root = str(ROOT)
    environment = os.environ | {"PYTHONPATH": root}
    command = [sys.executable, "-m", "tpcheck", "verify", "script.py", "--examples", "4"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "can't be started inside a rank" in done.stderr
    assert "Traceback" not in done.stderr


def test_each_degree_has_its_share_of_the_time(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests import faulty

    looks = itertools.count()  # a clock of which each look takes a tenth of a second
    clock = types.SimpleNamespace(monotonic=lambda: next(looks) / 10)
    monkeypatch.setattr("tpcheck.search.search.time", clock)
    search = Search(faulty.check(faulty._Row), gloo, Options(examples=4000, corpus=None))
    result = search.run(deadline=20.0)
    assert result.tp_degrees == [2, 4] and result.examples < 200


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
    found = {m.tensor: m.detail for m in result.mismatches if m.kind == "sharding"}
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
    up = next(m.detail for m in found if (m.kind, m.tensor) == ("sharding", "up"))
    assert (up["fault"], up.get("axes")) == (fault, axes)
