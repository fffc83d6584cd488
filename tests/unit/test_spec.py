"""Specs and checks: what may be given, what is overridden, under which name it goes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import FrozenInstanceError, replace
from functools import partial, wraps
from typing import Any

import pytest
import torch

from tpcheck import Argument, kernel_check, specs
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument
from tpcheck.layout import Layout

SPEC = specs.row_linear()


def build(case: Case, mesh: Any) -> Any:
    return None


held = Check(SPEC, candidate=build)
watched = Check(SPEC, candidate=build, witness=lambda case: {})
twin = Check(SPEC, candidate=build)


def test_a_check_takes_its_name_then_its_variable_then_its_spec() -> None:
    assert Check(SPEC, build, name="mine").title == "mine"
    assert held.title == "held"
    assert Check(specs.row_linear(), build).title == "row_linear"


def test_a_check_knows_the_file_and_variable_that_hold_it() -> None:
    assert held.address() == (__file__, "held")
    assert held.named("other").address() == (__file__, "held")
    assert watched.address() == (__file__, "watched")
    assert replace(watched, name="other").address() == (__file__, "watched")
    assert twin.address() == (__file__, "twin")
    assert replace(held, witness=lambda case: {}).address() is None


def test_a_check_that_no_variable_holds_has_no_address() -> None:
    assert Check(SPEC, lambda case, mesh: None).address() is None
    assert Check(specs.row_linear(), build).address() is None


def test_renaming_keeps_everything_else() -> None:
    parts = {"load": lambda module, state: None, "schedule": lambda module, inputs, seeds: []}
    parts["save"] = lambda module, folder: None  # type: ignore[assignment]
    check = Check(SPEC, build, **parts)
    renamed = check.named("other")
    assert renamed.title == "other" and check.name == ""
    assert (renamed.spec, renamed.candidate) == (check.spec, build)
    assert (renamed.load, renamed.schedule) == (check.load, check.schedule)
    assert renamed.save is check.save is not None


@pytest.mark.parametrize("given", [specs.row_linear, "row_linear", None, build])
def test_what_is_no_spec_is_refused_by_type(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=rf"Check\(spec=…\) is a {type(given).__name__}"):
        Check(given, build)


def test_what_saves_must_load() -> None:
    with pytest.raises(InvalidArgument, match=r"save=…\): nothing loads what it saves"):
        Check(SPEC, build, save=lambda module, folder: None)
    with pytest.raises(InvalidArgument, match=r"save='folder'"):
        Check(SPEC, build, save="folder", load=lambda module, folder: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, 3, "build"])
def test_a_candidate_that_cannot_be_called_is_refused_by_type(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=rf"candidate=…\) is a {type(given).__name__}"):
        Check(SPEC, given)


def test_a_context_has_no_place_where_the_candidate_calls_by_itself() -> None:
    kernel = kernel_check(torch.sin, reference=torch.sin, arguments={"x": Argument(3)})
    with pytest.raises(InvalidArgument, match="a kernel is called in none"):
        replace(kernel, context=nullcontext)
    schedule = lambda module, inputs, cotangents: []  # noqa: E731
    with pytest.raises(InvalidArgument, match="a schedule calls forwards itself"):
        Check(SPEC, build, schedule=schedule, forward_context=nullcontext)
    both = Check(SPEC, build, context=nullcontext, forward_context=nullcontext)
    assert both.named("other").context is nullcontext


def test_where_every_factor_is_drawn_there_are_no_constants() -> None:
    with pytest.raises(InvalidArgument, match="with linear=True every factor is drawn"):
        replace(SPEC, linear=True, constants=("x",))


def test_an_override_replaces_the_specs_for_this_check_only() -> None:
    def layout(case: Case) -> Layout:
        return Layout()

    check = Check(SPEC, build, overrides={"layout": layout})
    assert check.spec.layout is layout and SPEC.layout is not layout
    assert check.spec.reference is SPEC.reference
    assert check.named("other").spec.layout is layout


@pytest.mark.parametrize(
    ("name", "near"), [("finalise", "'finalize'"), ("name", "'name': …. is not a field")]
)
def test_what_is_no_field_of_a_spec_cannot_be_overridden(name: str, near: str) -> None:
    with pytest.raises(InvalidArgument, match=near):
        Check(SPEC, build, overrides={name: None})


def test_specs_and_checks_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        SPEC.name = "other"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        held.name = "other"  # type: ignore[misc]


def test_two_checks_of_the_same_parts_are_two_checks() -> None:
    assert Check(SPEC, build) != Check(SPEC, build)
    assert len({Check(SPEC, build), Check(SPEC, build)}) == 2


@pytest.mark.parametrize("name", ["", "..torch", "torch.", "torch nn", "a/b", "torch..nn"])
def test_what_is_no_modules_name_is_not_preloaded(name: str) -> None:
    """It would pass for a package that is not installed, and the check would be skipped."""
    with pytest.raises(InvalidArgument, match="a tuple of names of modules"):
        replace(SPEC, preload=(name,))


def test_a_budget_that_is_not_there_is_not_asked_for() -> None:
    """Nothing would be compared, and the check would pass."""
    bare = replace(SPEC, budget=None)
    with pytest.raises(InvalidArgument, match=r"communication=True.*row_linear.*has no budget"):
        Check(bare, build, communication=True)
    assert Check(bare, build, communication=True, overrides={"budget": SPEC.budget}).communication
    assert not Check(bare, build).communication


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"candidate": lambda case: None}, "(case, mesh)"),
        ({"load": lambda module: None}, "(module, state)"),
        ({"load": lambda module, folder: None, "save": lambda module: None}, "(module, folder)"),
        ({"schedule": lambda module, passes: None}, "(module, inputs, cotangents)"),
        ({"witness": lambda: {}}, "(case)"),
        ({"context": lambda mesh: nullcontext()}, "called with ()"),
        ({"context": torch.no_grad()}, "give the function that makes it"),
        ({"forward_context": torch.no_grad()}, "give the function that makes it"),
    ],
)
def test_a_function_of_other_arguments_is_refused_where_it_is_given(
    parts: dict[str, Any], says: str
) -> None:
    """It was told of the candidate, as a rank that crashed in tpcheck's own files."""
    with pytest.raises(InvalidArgument) as raised:
        Check(**{"spec": SPEC, "candidate": build, **parts})
    assert says in str(raised.value)


def test_what_can_be_called_so_is_taken_however_it_is_written() -> None:
    class Module(torch.nn.Linear):
        def __init__(self, case: Case, mesh: Any, *, bias: bool = True) -> None:
            super().__init__(1, 1, bias)

    def several(*given: Any, **named: Any) -> Any: ...

    def given_more(case: Case, mesh: Any, group: Any) -> Any: ...

    @wraps(given_more)
    def wrapped(case: Case, mesh: Any) -> Any: ...

    for candidate in (Module, several, type, wrapped, partial(wrapped)):
        assert Check(SPEC, candidate, context=torch.no_grad).candidate is candidate
