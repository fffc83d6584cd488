"""What a check opens around its candidate, and inputs that are given as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpcheck import Case, Check, InvalidArgument, Layout, Spec
from tpcheck.engines.engine import Engine
from tpcheck.evidence import Raised
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict

OPEN: list[bool] = []


@contextmanager
def opened() -> Iterator[None]:
    OPEN.append(True)
    try:
        yield
    finally:
        OPEN.pop()


class Noted(torch.autograd.Function):
    """The identity where the context is open once; twice as much outside, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * (1 if OPEN == [True] else 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * (1 if OPEN == [True] else 2)


class Scaled(nn.Module):
    """x → weight · x."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


class InContext(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        return Noted.apply(super().forward(x))


def one_by_one(module: Any, inputs: Any, cotangents: Any) -> list[Tensor]:
    outputs = [module(**given) for given in inputs]
    for output, given in zip(outputs, cotangents, strict=True):
        output.backward(given["output"])
    return outputs


CASE = Case(dims={}, mesh={"tp": 2}, microbatches=2, step=True)
SPEC = Spec(
    name="scaled",
    cases=[CASE],
    reference=lambda case: Scaled(),
    inputs=lambda case, draw: {"x": draw("x", 3, 4)},
    layout=lambda case: Layout(),
)
CHECK = Check(SPEC, lambda case, mesh: InContext(), context=opened)


def kinds(check: Check, engine: Engine, case: Case = CASE) -> set[str]:
    found = Runner(check, engine).run(case).mismatches
    return {mismatch.kind.value for mismatch in found} - {"param", "sharding"}


def named(engine: Engine, **changed: Any) -> set[str]:
    """Kinds of what is wrong; nothing is sharded, which does not count here."""
    return kinds(replace(CHECK, **changed), engine)


def test_a_context_is_open_once_in_forward_backward_and_the_forward_after_a_step(
    gloo: Engine,
) -> None:
    assert named(gloo) == set()
    assert named(gloo, schedule=one_by_one) == set()


def test_the_twin_without_it_both_are_wrong_and_backward_where_forwards_alone_have_it(
    gloo: Engine,
) -> None:
    outside = replace(CHECK, context=None)
    forward = replace(CHECK, context=None, forward_context=opened)
    short = replace(CASE, step=False)
    assert kinds(outside, gloo, short) == {"output", "input_grad", "param_grad"}
    assert kinds(forward, gloo, short) == {"input_grad", "param_grad"}
    assert named(gloo, context=None, schedule=one_by_one) >= {"output", "input_grad"}


@pytest.mark.parametrize("given", [lambda: 3, lambda: opened], ids=["number", "function"])
def test_what_is_no_context_is_said(gloo: Engine, given: Any) -> None:
    (found, *_) = Runner(replace(CHECK, context=given), gloo).run(CASE).mismatches
    assert isinstance(found.detail, Raised)
    assert re.match("the check's context returned .*; return a context", found.detail.text)


# ---- inputs that are given as they are

TABLE = torch.tensor([[0.5, -1.0, 0.0, 3.0], [1.5, 0.0, 1.0, 2.0]], dtype=torch.float64)
LARGE = Case(dims={}, mesh={"tp": 2}, magnitude=4, memory="expanded")


def looked(x: Tensor, table: Tensor) -> Tensor:
    """2·x, and x where the table is another one."""
    right = torch.equal(table.detach(), TABLE) and table.is_contiguous()
    return x * (2 if right and not table.requires_grad else 1)


def constants(engine: Engine, case: Case, names: tuple[str, ...]) -> CaseResult:
    spec = replace(
        SPEC,
        reference=lambda case: lambda x, table: x * 2,
        inputs=lambda case, draw: {"x": draw("x", 3, 4), "table": TABLE},
        constants=names,
    )

    return Runner(Check(spec, lambda case, mesh: looked), engine).run(case)


def test_a_constant_is_what_the_spec_gives_in_every_case_and_takes_no_gradient(
    gloo: Engine,
) -> None:
    assert constants(gloo, LARGE, ("table",)).verdict is Verdict.PASS
    assert constants(gloo, LARGE, ()).verdict is Verdict.FAIL  # the twin


def test_a_constant_that_is_no_input_is_one_line(gloo: Engine) -> None:
    with pytest.raises(InvalidArgument, match=r"constants= names 'tabel'.*did you mean 'table'"):
        constants(gloo, LARGE, ("tabel",))
