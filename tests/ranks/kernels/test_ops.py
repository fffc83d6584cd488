"""Ops of `torch.library` as subjects: held to opcheck, named, found again in the corpus."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from tests.ranks.kernels import odd_ops
from tests.ranks.kernels.test_kernel_check import SHAPES, product
from tpcheck import Case, kernel_check
from tpcheck.engines.engine import Engine
from tpcheck.evidence import Misregistered
from tpcheck.runner.runner import Runner
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict
from tpcheck.vocabulary import OpTest

OPTIONS = Options(examples=12, corpus=None, shrink_cases=10)


def run(fn: Any, engine: Engine, **more: Any) -> CheckResult:
    given = {"reference": product, "arguments": SHAPES, **more}
    return Search(kernel_check(fn, name="subject", **given), engine, OPTIONS).run()


def failed(found: CheckResult) -> set[OpTest]:
    assert found.counterexample is not None, found.reason
    details = [mismatch.detail for mismatch in found.counterexample.mismatches]
    return {detail.test for detail in details if isinstance(detail, Misregistered)}


def code(found: CheckResult) -> str:
    assert found.counterexample is not None, found.reason
    return found.counterexample.diagnosis.code


PACKET = getattr(torch.ops, odd_ops.LIBRARY).right


@pytest.mark.parametrize(
    "fn",
    [
        odd_ops.right,
        PACKET,
        pytest.param(PACKET.default, marks=pytest.mark.sweep),
        pytest.param(partial(odd_ops.right), marks=pytest.mark.sweep),
        lambda x, y: odd_ops.right(x, y) + 0,
        odd_ops.OfRightOps.apply,
    ],
    ids=["custom_op", "packet", "overload", "partial", "inside", "autograd"],
)
def test_a_right_op_passes(fn: Any, gloo: Engine) -> None:
    found = run(fn, gloo)
    assert found.verdict is Verdict.PASS, found


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        (odd_ops.without_fake, OpTest.FAKE),
        pytest.param(odd_ops.fake_of_other_shape, OpTest.FAKE, marks=pytest.mark.sweep),
        pytest.param(odd_ops.fake_of_other_dtype, OpTest.FAKE, marks=pytest.mark.sweep),
        pytest.param(odd_ops.fake_of_other_strides, OpTest.FAKE, marks=pytest.mark.sweep),
        (odd_ops.backward_reads_numbers, OpTest.AOT_DISPATCH),
        (odd_ops.autograd_at_the_cpus_key, OpTest.AUTOGRAD),
        (lambda x, y: odd_ops.fake_of_other_shape(x, y) + 0, OpTest.FAKE),
        pytest.param(odd_ops.OfOps.apply, OpTest.FAKE, marks=pytest.mark.sweep),
    ],
    ids=["no-fake", "shape", "dtype", "strides", "backward", "key", "inside", "backward-op"],
)
def test_what_an_op_is_not_registered_as_is_named(wrong: Any, test: OpTest, gloo: Engine) -> None:
    found = run(wrong, gloo)
    assert test in failed(found)
    assert code(found) == "custom-op"
    assert run(wrong, gloo, opcheck=False).verdict is Verdict.PASS


_modes: dict[str, tuple[bool, bool]] = {}


def in_the_mode_of_its_numbers(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mode = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    if x.numel() and _modes.setdefault(str(x.detach().flatten().tolist()), mode) != mode:
        raise RuntimeError(f"{mode} after {_modes}")
    product: torch.Tensor = odd_ops.right(x, y)
    return product + 0


def test_what_is_held_to_opcheck_runs_in_the_mode_of_its_case(gloo: Engine) -> None:
    check = kernel_check(in_the_mode_of_its_numbers, reference=product, arguments=SHAPES)
    runner = Runner(check, gloo)
    for seed in range(12):
        case = Case(dims={"rows": 3, "width": 4}, mesh={"tp": 1}, gradients="none", seed=seed)
        assert runner.run(case).verdict is Verdict.PASS, case


def test_a_change_that_the_schema_hides_is_found_where_it_is_declared(gloo: Engine) -> None:
    found = run(odd_ops.hides_a_change, gloo, overwrites=("x",))
    assert OpTest.SCHEMA in failed(found)
    assert code(run(odd_ops.hides_a_change, gloo)) == "input-overwritten"


def test_an_output_that_is_an_input_is_named(gloo: Engine) -> None:
    found = run(odd_ops.returns_its_input, gloo, reference=lambda x, y: x.detach())
    assert failed(found) >= {OpTest.SCHEMA}


def test_an_op_without_autograd_drops_the_gradient(gloo: Engine) -> None:
    assert code(run(odd_ops.without_autograd, gloo)) == "gradient-dropped"
