"""Tensors that a kernel reaches through tuples, descriptors and addresses are known; others are
not. What a check is made of reaches the ranks, ops by their names included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import strategies
from torch import Tensor

from tests.ranks.kernels import reached
from tpcheck import Argument, kernel_check
from tpcheck.engines.engine import Engine
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict

OPTIONS = Options(corpus=None, shrink_cases=6, dtypes=("float32",))


def run(
    fn: Any, engine: Engine, *, gradient: bool = False, examples: int = 12, **more: Any
) -> CheckResult:
    given: dict[str, Any] = {
        "reference": lambda x: 2 * x,
        "arguments": {"x": Argument("rows", "width", gradient=gradient)},
        "sizes": {"rows": lambda _: strategies.integers(1, 9), "width": lambda _: 8},
        "families": ("normal",),
    }
    options = replace(OPTIONS, examples=examples)
    return Search(kernel_check(fn, name="subject", **given | more), engine, options).run()


@pytest.mark.parametrize(
    "fn",
    [
        reached.by_descriptor,
        reached.by_tuple,
        reached.by_address,
        reached.by_an_address_of_the_module,
        reached.by_an_address_of_the_first_case,
        lambda x: torch.ops.aten.mul(x, 2),
    ],
    ids=["descriptor", "tuple", "address", "module", "first case", "torch.ops"],
)
def test_a_right_function_passes_however_its_tensors_are_reached(gloo: Engine, fn: Any) -> None:
    result = run(fn, gloo)
    assert result.verdict is Verdict.PASS, (result.reason, result.counterexample)


@pytest.mark.parametrize("fn", [reached.by_triton_op, reached.OF_THE_LIBRARY])
def test_a_right_op_of_triton_passes_where_torch_takes_what_is_interpreted(
    gloo: Engine, fn: Any
) -> None:
    result = run(fn, gloo)
    if hasattr(torch._library.triton, "_is_interpreted_triton_kernel"):
        assert result.verdict is Verdict.PASS, (result.reason, result.counterexample)
    else:
        assert result.verdict is Verdict.UNKNOWN and "wrap_triton" in str(result.reason)


def test_what_is_behind_a_tensor_that_was_given_by_address_is_out_of_bounds(gloo: Engine) -> None:
    found = run(reached.beyond_an_address, gloo).counterexample
    assert found is not None and found.diagnosis.code == "out-of-bounds", found


def test_a_gradient_that_a_second_backward_loses_is_told(gloo: Engine) -> None:
    found = run(reached.LosesASecondGradient.apply, gloo, gradient=True).counterexample
    assert found is not None and found.diagnosis.code == "second-backward", found


def test_what_is_kept_between_calls_is_a_fault(gloo: Engine) -> None:
    """Each case is right on fresh ranks."""
    options = {"causal": strategies.booleans()}
    sizes = {"rows": lambda _: 2, "width": lambda _: strategies.integers(2, 3)}
    wanted = {"reference": reached.by_its_mask, "options": options, "sizes": sizes}
    result = run(reached.by_a_cached_mask, gloo, gradient=True, **wanted)
    assert result.verdict is Verdict.FAIL and result.counterexample
    said = result.counterexample.diagnosis
    assert said.code == "stale-buffer" and "something is kept between calls" in said.message
    assert run(reached.by_its_mask, gloo, gradient=True, **wanted).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "kept",
    [reached.KeepsItsWeight, reached.KeepsItsUpstream, reached.KeepsItsUpstreamInFewPlaces],
)
def test_what_backward_keeps_is_met_again(gloo: Engine, kept: Any) -> None:
    """The last one is met where the case has run before, too, which is not why it fails."""
    arguments = {"x": Argument("rows", "width"), "weight": Argument("width")}
    wanted = {"reference": lambda x, weight: x * weight, "arguments": arguments}
    result = run(kept.apply, gloo, examples=30, **wanted)
    assert result.counterexample and result.counterexample.diagnosis.code == "stale-buffer", result


def test_what_takes_several_cases_before_it_is_a_fault(gloo: Engine) -> None:
    """None of them alone makes the next one wrong."""
    result = run(reached.wrong_each_fortieth_time, gloo, examples=30)
    assert result.verdict is Verdict.FAIL and result.counterexample, result.reason
    said = result.counterexample.diagnosis
    assert said.code == "stale-buffer" and "others before that in the same" in said.message, said


def test_what_goes_by_the_address_of_a_tensor_is_a_fault(gloo: Engine) -> None:
    arguments = {
        "x": Argument("rows", "width"),
        "weight": Argument("width", gradient=False),
    }
    wanted = {"reference": lambda x, weight: x * weight.exp(), "arguments": arguments}
    result = run(reached.by_a_cached_exponential, gloo, **wanted)
    assert result.verdict is Verdict.FAIL and result.counterexample
    assert "have changed in place since a call" in str(result.counterexample.diagnosis), result
    result = run(reached.by_a_cached_exponential_of_its_version, gloo, **wanted)
    assert result.counterexample and result.counterexample.diagnosis.code == "stale-buffer", result
    right = run(lambda x, weight: x * weight.exp(), gloo, **wanted)
    assert right.verdict is Verdict.PASS, right.counterexample


def test_an_order_of_sums_that_goes_by_the_layout_is_right(gloo: Engine) -> None:
    """The rows of one are contiguous by any stride."""
    sizes = {"rows": lambda _: 1, "width": lambda _: strategies.integers(50, 99)}
    wanted = {"reference": lambda x: x.sum(-1), "sizes": sizes}
    result = run(reached.summed_by_its_layout, gloo, examples=40, **wanted)
    assert result.verdict is Verdict.PASS, result.counterexample


def test_integers_may_be_negative(gloo: Engine) -> None:
    def signs(x: Tensor) -> Tensor:
        assert bool((x.abs() <= 3).all())
        return x.sign()

    arguments = {"x": Argument("rows", "width", integers=(-3, 4), dtype="int8")}
    result = run(signs, gloo, reference=lambda x: x.sign(), arguments=arguments)
    assert result.verdict is Verdict.PASS, result.reason
    wrong = run(lambda x: x.clamp(min=0), gloo, reference=lambda x: x, arguments=arguments)
    assert wrong.verdict is Verdict.FAIL
