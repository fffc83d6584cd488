"""A check's trouble is that check's: whatever of it can't run, the others get their verdicts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from fixtures.mutants import MUTANTS
from fixtures.parallel.linear import RowLinear
from tests import candidates
from tpcheck import Case, Check, KnownFinding, Layout, Spec, Verdict
from tpcheck.cli import signals
from tpcheck.engines.engine import Engine
from tpcheck.errors import EngineUnavailable, InvalidArgument
from tpcheck.failed import CheckFailed
from tpcheck.search.options import Options
from tpcheck.search.session import Session
from tpcheck.search.verify import verify, verify_all
from tpcheck.verdict import CheckResult, exit_code

RIGHT = candidates.check(RowLinear)
WRONG = next(m for m in MUTANTS if m.name == "row_linear_without_all_reduce").check
RIGHT_ALONE = CheckResult("right", Verdict.PASS, "gloo")
FEW = Options(examples=2, degrees=(2,), corpus=None)


def broken(**parts: Any) -> Check:
    """A right candidate, and a spec one part of which is replaced."""
    return replace(RIGHT, name="broken", overrides=parts)


def stop(*_: Any) -> Any:
    sys.exit(0)


class Skipped(BaseException):
    """As pytest's own, which is no `Exception` either."""


def skip(*_: Any) -> Any:
    raise Skipped("not here")


def fail(*_: Any) -> Any:
    raise ZeroDivisionError("not today")


class OnlyFloat32(torch.nn.Linear):
    """As operations without a kernel for float64 do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.float64:
            raise RuntimeError("Expected mat_a to be Float32 matrix got Double")
        return super().forward(x)


def only_float32(case: Case) -> Any:
    return OnlyFloat32(case["in_features"], case["out_features"], bias=case["bias"])


class Held:
    """What no process can hand to another."""

    lock = threading.Lock()

    def __init__(self) -> None:
        self.own = threading.Lock()

    def __call__(self, case: Case, mesh: Any) -> Any:
        raise AssertionError(self.own)


class Unwelcome:
    """A candidate that ranks can't import."""

    def __reduce__(self) -> Any:
        return (fail, ())

    def __call__(self, case: Case, mesh: Any) -> Any:
        raise AssertionError


def undecided(case: Case) -> bool:
    return fail() if case["in_features"] != 4 else True


FINDING = KnownFinding(
    "torch", ">=0", "rank-crash", Case(candidates.linear_dims()), "x.md", when=undecided
)
TROUBLES: dict[str, tuple[Callable[[], Check], str]] = {
    "reference raises": (lambda: broken(reference=fail), "ZeroDivisionError: not today"),
    "reference exits": (lambda: broken(reference=stop), "SystemExit"),
    "reference not in float64": (
        lambda: broken(reference=only_float32),
        "for float64, give an implementation",
    ),
    "inputs exit": (lambda: broken(inputs=stop), "SystemExit"),
    "forward raises": (lambda: broken(forward=fail), "ZeroDivisionError"),
    "init raises": (lambda: broken(init=fail), "ZeroDivisionError"),
    "layout is none": (lambda: broken(layout=lambda case: None), "not a Layout"),
    "cases raises": (lambda: broken(cases=fail), "ZeroDivisionError"),
    "cases skips": (lambda: broken(cases=skip), "Skipped: not here"),
    "cases skips when drawn": (lambda: broken(cases=lambda s: st.integers().map(skip)), "Skipped"),
    "cases draws ints": (lambda: broken(cases=lambda space: st.integers()), "not a Case"),
    "cases exits when drawn": (
        lambda: broken(cases=lambda space: st.integers().map(stop)),
        "the strategy of its cases raised SystemExit",
    ),
    "unavailable raises": (lambda: broken(unavailable=fail), "unavailable raised ZeroDiv"),
    "unavailable skips": (lambda: broken(unavailable=skip), "unavailable raised Skipped"),
    "unavailable is odd": (lambda: broken(unavailable=lambda: 3), "unavailable returned a int"),
    "candidate not to be sent": (lambda: replace(RIGHT, candidate=Held()), "can't be sent"),
    "candidate not to be imported": (
        lambda: replace(RIGHT, candidate=Unwelcome()),
        "can't import the candidate",
    ),
    "when raises": (lambda: replace(RIGHT, known=(FINDING,)), "known findings"),
}


@pytest.mark.parametrize("kind", TROUBLES)
def test_a_check_that_can_not_run_is_unknown_and_the_others_run(kind: str, gloo: Engine) -> None:
    make, words = TROUBLES[kind]
    told: list[CheckResult] = []
    results = verify_all([make(), RIGHT], Session(gloo), FEW, finished=told.append)
    assert [r.verdict for r in results] == [Verdict.UNKNOWN, Verdict.PASS] and told == results
    troubled, right = results
    assert troubled.trouble and words in str(troubled.reason)
    assert len(str(troubled.reason).splitlines()) == 1
    assert not right.trouble and right.examples == 2
    assert exit_code(results) == 2


def test_the_call_from_python_runs_the_others_and_is_the_users_mistake(gloo: Engine) -> None:
    with pytest.raises(InvalidArgument, match="not today") as caught:
        verify(broken(reference=fail), RIGHT, engine=gloo, examples=2, degrees=(2,))
    assert isinstance(caught.value, CheckFailed)
    assert [r.name for r in caught.value.results] == ["broken"]
    with pytest.raises(CheckFailed) as failed:
        verify(broken(reference=fail), WRONG, engine=gloo, examples=2, degrees=(2,))
    assert not isinstance(failed.value, InvalidArgument), "one FAILs"
    assert [r.verdict for r in failed.value.results] == [Verdict.UNKNOWN, Verdict.FAIL]


def plain(reference: Any, cases: list[Case]) -> Spec:
    return Spec(
        name="plain",
        cases=cases,
        reference=reference,
        inputs=lambda case, draw: {"x": draw("x", 2, case["n"])},
        layout=lambda case: Layout(),
    )


def reference_up_to_four(case: Case) -> Any:
    if case["n"] < 4:
        raise ValueError("too small")
    return torch.nn.Linear(case["n"], case["n"])


def doubled(case: Case, mesh: Any) -> Any:
    class Doubled(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    return Doubled(case["n"], case["n"])


def test_what_failed_before_the_trouble_stays_a_fail(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tpcheck.search.hunt import Hunt

    look, listed = Hunt._look_lower, [Case({"n": 4})]

    def interrupted(hunt: Hunt, streams: Any) -> None:
        look(hunt, streams)
        reference_up_to_four(Case({"n": 1}))

    monkeypatch.setattr(Hunt, "_look_lower", interrupted)
    check = Check(plain(reference_up_to_four, listed), doubled)
    (result,) = verify_all([check], Session(gloo), FEW)
    assert result.verdict is Verdict.FAIL and result.counterexample is not None
    assert result.fault and "too small" in str(result.reason), "raised where nothing is called"
    assert exit_code([result]) == 1


def test_a_fault_of_tpchecks_own_is_no_mistake_of_the_checks(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tpcheck import placement

    def amiss(*_: Any, **__: Any) -> Any:
        raise IndexError("index out of range")

    monkeypatch.setattr(placement, "_take_axis", amiss)
    (result,) = verify_all([RIGHT], Session(gloo), FEW)
    assert result.verdict is Verdict.UNKNOWN and not result.trouble
    assert "please report it" in str(result.reason) and len(str(result.reason).splitlines()) == 1
    assert str(result.fault).startswith("Traceback") and "_take_axis" in str(result.fault)
    assert exit_code([result, RIGHT_ALONE]) == 3


def test_where_the_ranks_are_gone_for_good_the_rest_is_unknown(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> None:
        raise EngineUnavailable("no room for ranks")

    results: list[CheckResult] = []

    def finished(result: CheckResult) -> None:
        results.append(result)
        monkeypatch.setattr(gloo, "teach", gone)
        monkeypatch.setattr(gloo, "start", gone)

    verify_all([RIGHT, RIGHT, WRONG], Session(gloo), FEW, finished=finished)
    assert [r.verdict for r in results] == [Verdict.PASS, Verdict.UNKNOWN, Verdict.UNKNOWN]
    assert all("no room for ranks" in str(r.reason) for r in results[1:])
    assert not any(r.trouble for r in results) and exit_code(results) == 3


def test_a_failure_that_can_not_be_examined_stays_a_fail(gloo: Engine) -> None:
    check = replace(WRONG, name="broken", communication=False, overrides={"budget": fail})
    (result,) = verify_all([check], Session(gloo), FEW)
    assert result.verdict is Verdict.FAIL and result.counterexample is not None
    assert result.trouble and "budget raised ZeroDivisionError" in str(result.reason)
    assert result.counterexample.diagnosis.message and exit_code([result]) == 1


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("part", ["reference", "cases", "inputs"])
def test_a_spec_that_raises_an_interrupt_is_no_ctrl_c(part: str, gloo: Engine) -> None:
    checks = [broken(**{part: interrupt}), RIGHT]
    with signals.heard():
        first, second = verify_all(checks, Session(gloo), FEW)
    assert first.trouble and "KeyboardInterrupt" in str(first.reason)
    assert second.verdict is Verdict.PASS
