"""Nothing compared is not a PASS: what a reference or a candidate returns in place of numbers that
could be judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpcheck import Case, Check, Layout, Replicate, Spec
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.evidence import WrongForm
from tpcheck.report.as_json import detail
from tpcheck.runner.runner import Runner
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CaseResult, CheckResult, Verdict
from tpcheck.vocabulary import Kind, Unjudged

CASE = Case(mesh={"tp": 2})
Of = Callable[[Tensor], Any]


class Gain(nn.Module):
    """`of` what x becomes under one parameter."""

    def __init__(self, of: Of) -> None:
        super().__init__()
        self.gain, self.of = nn.Parameter(torch.ones(4)), of

    def forward(self, x: Tensor) -> Any:
        return self.of(x * self.gain)


def of(right: Of, candidate: Of | None = None, **more: Any) -> Check:
    """Both compute x · gain, and return `right` and `candidate` of it."""
    about: dict[str, Any] = {
        "cases": [CASE],
        "reference": lambda case: Gain(right),
        "inputs": lambda case, draw: {"x": draw("x", 3, 4)},
        "layout": lambda case: Layout(params={"gain": Replicate()}),
    } | more
    spec = Spec(name="gain", **about)
    return Check(spec, lambda case, mesh: Gain(candidate or right))


def once(engine: Engine, check: Check) -> CaseResult:
    return Runner(check, engine).run(CASE)


def searched(engine: Engine, check: Check) -> CheckResult:
    return Search(check, engine, Options(corpus=None)).run()


# ---- what the reference says nothing about


def nowhere(y: Tensor) -> Tensor:
    return y * torch.nan


def test_a_reference_that_is_nan_everywhere_decides_nothing(gloo: Engine) -> None:
    result = searched(gloo, of(nowhere, lambda y: y))
    assert (result.verdict, result.examples) == (Verdict.UNKNOWN, 0)
    assert result.reason is not None and "output" in result.reason and "NaN" in result.reason


def test_one_output_of_which_nothing_is_judged_decides_that_nothing_is_known(gloo: Engine) -> None:
    """Its gradient is judged, and so is the other output."""

    def both(factor: float) -> Of:
        return lambda y: {"right": y, "blind": y.detach() * torch.inf * factor}

    result = searched(gloo, of(both(1.0), both(-1.0)))
    assert (result.verdict, result.examples) == (Verdict.UNKNOWN, 1)
    assert result.reason is not None and "output blind" in result.reason
    assert result.judged[Kind.OUTPUT, "right"].complete
    assert result.judged[Kind.OUTPUT, "blind"].why == {Unjudged.NOT_FINITE: 12}


def test_what_is_judged_in_part_passes_and_is_said(gloo: Engine) -> None:
    def hole(y: Tensor) -> Tensor:
        return torch.where(torch.arange(4) == 0, torch.inf, y)

    result = searched(gloo, of(hole))
    assert result.verdict is Verdict.PASS
    output = result.judged[Kind.OUTPUT, "output"]
    assert (output.elements, output.judged, output.cases, output.judged_in) == (12, 9, 1, 1)


def test_each_pass_and_each_dp_coordinate_counts(gloo: Engine) -> None:
    case = Case(mesh={"dp": 2, "tp": 2}, microbatches=2, step=True)
    found = Runner(of(lambda y: y, cases=[case]), gloo).run(case).judged
    assert found[Kind.OUTPUT, "output"].elements == 12 * 2 * 3
    assert found[Kind.INPUT_GRAD, "x"].elements == 12 * 2 * 2
    assert all(own.complete for own in found.values())


def test_an_empty_tensor_counts_as_judged(gloo: Engine) -> None:
    empty = of(lambda y: y, inputs=lambda case, draw: {"x": draw("x", 0, 4)})
    assert searched(gloo, empty).verdict is Verdict.PASS


@pytest.mark.parametrize("returned", [{}, (), [None], {"text": "y"}], ids=repr)
def test_a_reference_that_returns_no_tensor_is_refused(gloo: Engine, returned: Any) -> None:
    with pytest.raises(InvalidArgument, match="returned no tensor"):
        once(gloo, of(lambda y: returned))


class Constant(nn.Module):
    """Takes no input at all."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.gain, self.by = nn.Parameter(torch.ones(4)), by

    def forward(self) -> Tensor:
        return self.gain * self.by


def test_a_module_without_inputs_is_run_and_compared(gloo: Engine) -> None:
    def constant(by: float) -> Check:
        more: dict[str, Any] = {"inputs": lambda case, draw: {}}
        check = of(lambda y: y, reference=lambda case: Constant(1.0), **more)
        return replace(check, candidate=lambda case, mesh: Constant(by))

    assert searched(gloo, constant(1.0)).verdict is Verdict.PASS
    assert searched(gloo, constant(2.0)).verdict is Verdict.FAIL


# ---- what is not finite in what the spec gives


def given(value: float) -> dict[str, Any]:
    """One number of x is `value`."""

    def inputs(case: Case, draw: Any) -> Mapping[str, Tensor]:
        x = draw("x", 3, 4)
        x[1, 2] = value
        return {"x": x}

    return {"inputs": inputs}


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_number_that_is_not_finite_must_be_the_same_on_both_sides(
    gloo: Engine, value: float
) -> None:
    assert searched(gloo, of(lambda y: y, **given(value))).verdict is Verdict.PASS

    def other(y: Tensor) -> Tensor:
        return torch.where(y.isfinite(), y, -y if y.isinf().any() else 0.0)

    found = once(gloo, of(lambda y: y, other, **given(value)))
    assert (Kind.OUTPUT, (1, 2)) in {(m.kind, m.index) for m in found.mismatches}


# ---- what is compared as what it is


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (lambda y: y.argmax(-1) * 4 + 2**54, lambda y: y.argmax(-1) * 4 + 2**54 + 1),
        (lambda y: y > 0, lambda y: y >= -1e9),
        (lambda y: (y * 99).to(torch.uint8), lambda y: (y * 99).to(torch.uint8) + 1),
        (lambda y: (y > 0).to(torch.uint64), lambda y: (y > 0).to(torch.uint64) + 2**63),
        (lambda y: {"y": y, "sum": float(y.detach().sum())}, lambda y: {"y": y, "sum": 0.0}),
        (lambda y: (y, y.detach().numpy()), lambda y: (y, y.detach().numpy() + 1)),
    ],
    ids=["int64", "bool", "uint8", "uint64", "a number", "numpy"],
)
def test_it_is_compared_as_what_it_is(gloo: Engine, right: Of, wrong: Of) -> None:
    assert once(gloo, of(right)).verdict is Verdict.PASS
    assert once(gloo, of(right, wrong)).verdict is Verdict.FAIL


class Counting(Gain):
    """Counts its forwards, in a buffer."""

    def __init__(self, by: int) -> None:
        super().__init__(lambda y: y)
        self.register_buffer("calls", torch.tensor(0))
        self.by = by

    def forward(self, x: Tensor) -> Any:
        self.calls += self.by
        return super().forward(x)


def test_integer_buffers_are_compared_after_the_run(gloo: Engine) -> None:
    def counting(by: int) -> Check:
        check = of(lambda y: y, reference=lambda case: Counting(1))
        return replace(check, candidate=lambda case, mesh: Counting(by))

    assert once(gloo, counting(1)).verdict is Verdict.PASS
    assert {(m.kind, m.tensor) for m in once(gloo, counting(2)).mismatches} == {("param", "calls")}


# ---- forms that can't be compared


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (lambda y: torch.complex(y, y), "complex128"),
        (lambda y: y.to(torch.float8_e4m3fn), "float8_e4m3fn"),
        (lambda y: y.to_sparse(), "sparse_coo"),
        (lambda y: y.to("meta"), "meta"),
        (lambda y: torch.nested.nested_tensor([y], layout=torch.jagged), "nested"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_another_form_is_refused_of_the_reference_and_a_fail_of_the_candidate(
    gloo: Engine, made: Of, word: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"the output 'output' is {word}"):
        once(gloo, of(made))
    found = once(gloo, of(lambda y: y, made)).mismatches[0]
    assert isinstance(found.detail, WrongForm), detail(found)
    assert (found.kind, found.detail.form) == (Kind.OUTPUT, word)


class Strange(Tensor):
    """A class that answers nothing."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ == "__get__":  # an attribute
            return super().__torch_function__(func, types, args, kwargs or {})
        raise NotImplementedError("deliberate")


def test_a_class_of_the_candidates_own_is_its_numbers(gloo: Engine) -> None:
    right = once(gloo, of(lambda y: y.detach(), lambda y: y.detach().as_subclass(Strange)))
    assert right.verdict is Verdict.PASS
    wrong = once(gloo, of(lambda y: y.detach(), lambda y: (y + 1).detach().as_subclass(Strange)))
    assert {m.kind for m in wrong.mismatches} == {Kind.OUTPUT}


# ---- what the candidate leaves out, or adds


def test_an_output_that_is_left_out_is_a_fail(gloo: Engine) -> None:
    found = once(gloo, of(lambda y: {"a": y, "b": 2 * y}, lambda y: {"a": y}))
    assert next(m.tensor for m in found.mismatches if m.kind is Kind.OUTPUT) == "b"


def test_what_only_the_candidate_returns_is_said(gloo: Engine) -> None:
    result = searched(gloo, of(lambda y: {"a": y}, lambda y: {"a": y, "b": 2 * y}))
    assert result.verdict is Verdict.PASS
    assert result.judged[Kind.OUTPUT, "b"].why == {Unjudged.EXTRA: 12}


def test_a_candidate_whose_output_takes_no_gradient_is_a_fail(gloo: Engine) -> None:
    found = once(gloo, of(lambda y: y, lambda y: y.detach()))
    assert {m.kind for m in found.mismatches} == {Kind.INPUT_GRAD, Kind.PARAM_GRAD}
