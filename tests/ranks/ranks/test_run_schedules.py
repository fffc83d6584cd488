"""What a rank compares under a schedule of the candidate's own: its stage, each microbatch, and
messages that are lost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tpcheck import Case, Check, Layout, Spec
from tpcheck.engines.engine import Engine
from tpcheck.evidence import Stuck
from tpcheck.placement import Only
from tpcheck.report.as_json import detail
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult
from tpcheck.vocabulary import Impasse

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
    ops = [[(e.op, e.peer) for e in rank if e.phase == "schedule"] for rank in result.trace]
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
        return {(m.tensor, detail(m)["fault"], m.rank) for m in found}

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
    assert detail(found[0])["elsewhere"] == (
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
        assert f"schedule returned {given} for 3 microbatches" in detail(found[0])["reason"]


def test_a_message_that_nobody_receives_is_a_mismatch(gloo: Engine) -> None:
    class Talkative(Stages):
        def forward(self, *x: Tensor) -> Any:
            found = super().forward(*x)
            if self.rank == 0:
                dist.isend(torch.ones(2, 4, dtype=torch.float64), 1)
            return found

    (lost,) = run_stages(gloo, Talkative).mismatches
    assert (lost.kind, lost.tensor, lost.rank) == ("collective", "messages", 1)
    assert detail(lost)["reason"] == "rank 0 sent 5 messages to rank 1, which received 4"
    assert not run_stages(gloo).mismatches  # none is left over for the next case


@pytest.mark.parametrize("first", [0, 1])
def test_a_rank_that_waits_for_a_message_that_never_comes_is_seen_at_once(
    gloo: Engine, first: int
) -> None:
    class Silent(Stages):
        def run(self, inputs: Any, cotangents: Any) -> list[Any]:
            if self.rank == 1:
                return super().run(inputs, cotangents)
            ran = super().run(inputs[:first], cotangents[:first]) if first else []
            return ran + [{}] * (3 - first)

        def forward(self, *x: Tensor) -> Any:
            return {}

    found = run_stages(gloo, Silent).mismatches
    (hang,) = (m for m in found if m.kind == "hang")
    assert hang.rank == 1 and isinstance(hang.detail, Stuck)
    assert hang.detail.why is Impasse.PEER_FINISHED, "it was not waited for until the time limit"
    assert hang.detail.parted is None, "who sends and who receives are at two places anyway"
    assert "finished without" in detail(hang)["reason"] and "recv" in detail(hang)["last"][-1]
