"""Whose frame is it: packages installed beside torch, named alike, are users'."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import typing_extensions

import tpcheck
from tpcheck.comms import callsite, frames
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.reference import ask
from tpcheck.process.exits import refused
from tpcheck.report.text import _stack
from tpcheck.specs.linear import row_linear

SITE = Path(torch.__file__).parent.parent
OURS = Path(tpcheck.__file__).parent
BESIDE = [
    str(SITE / "torchtitan" / "linear.py"),
    str(SITE / "torchao" / "linear.py"),
    str(SITE / "torchrec" / "linear.py"),
    str(SITE / "torchvision.py"),
    str(Path(inspect.__file__).parent / "site-packages" / "torchtitan.py"),
    str(OURS.parent / "tpcheck_checks.py"),
    str(OURS.parent / "tpcheckers" / "linear.py"),
]
TRITON = str(SITE / "triton" / "runtime" / "interpreter.py")
LIBRARY = [
    TRITON,
    str(SITE / "torch" / "nn" / "functional.py"),
    str(OURS / "ranks" / "run.py"),
    inspect.__file__,  # where a launch lacks an argument
    str(typing_extensions.__file__),  # wraps what torch calls deprecated: all_gather_into_tensor
    "<frozen importlib._bootstrap>",
]


def function_in(file: str, body: str) -> Any:
    """`call(f)` whose code says that it lives in `file`."""
    scope: dict[str, Any] = {}
    exec(compile(f"def call(f):\n    {body}\n", file, "exec"), scope)
    return scope["call"]


@pytest.mark.parametrize("file", BESIDE)
def test_the_line_of_a_call_is_in_the_package_beside_torch(file: str) -> None:
    assert frames.is_users(file)
    assert function_in(file, "return f()")(callsite.line) == f"{Path(file).name}:2"


@pytest.mark.parametrize("file", LIBRARY)
def test_frames_of_libraries_are_passed_over(file: str) -> None:
    assert not frames.is_users(file)
    assert function_in(file, "return f()")(callsite.line).startswith("test_frames.py:")


def raised_anew(file: str) -> BaseException:
    """What is raised in a file for what a kernel of this one raises."""
    body = (
        "try:\n        f()\n    except ValueError as error:\n        raise KeyError(1) from error"
    )
    with pytest.raises(KeyError) as caught:
        function_in(file, body)(a_kernel)
    return caught.value


def a_kernel() -> None:
    raise ValueError("two shapes")


def test_what_a_library_raises_anew_has_the_line_of_its_cause() -> None:
    names = [f.name for f in frames.users(raised_anew(TRITON))]
    assert names == ["raised_anew", "a_kernel"]
    assert [f.name for f in frames.users(raised_anew(BESIDE[0]))] == ["raised_anew", "call"]
    assert [f.name for f in frames.users(raised_anew(LIBRARY[2]))] == ["raised_anew"]


@pytest.mark.parametrize("file", BESIDE)
def test_a_raising_package_beside_torch_keeps_its_traceback(file: str) -> None:
    raises = function_in(LIBRARY[1], "return f()")
    with pytest.raises(ZeroDivisionError) as caught:
        function_in(file, "return f(lambda: 1 / 0)")(raises)
    assert f'File "{file}", line 2, in call' in frames.stack(caught.value)
    assert LIBRARY[0] not in frames.stack(caught.value)


def test_a_traceback_without_a_users_frame_is_shown_whole() -> None:
    error = ValueError("nowhere")
    error.__traceback__ = None
    assert frames.stack(error) == ""
    try:
        function_in(LIBRARY[0], "raise ValueError(f)")("here")
    except ValueError as caught:
        caught.__traceback__ = caught.__traceback__.tb_next  # type: ignore[union-attr]
        assert LIBRARY[0] in frames.stack(caught)


def test_of_an_argument_that_is_refused_the_lines_that_refuse_it_are_not_shown() -> None:
    refuses = function_in(LIBRARY[0], "raise f('no')")
    with pytest.raises(InvalidArgument) as caught:
        function_in(BESIDE[0], "return f[0](f[1])")((refuses, InvalidArgument))
    assert caught.value.__traceback__ is not None
    ours = caught.value.__traceback__.tb_next  # below this test
    caught.value.__traceback__ = ours
    assert f'File "{BESIDE[0]}", line 2' in frames.stack(caught.value)
    assert ours is not None
    caught.value.__traceback__ = ours.tb_next
    assert frames.stack(caught.value) == ""


@pytest.mark.parametrize("file", BESIDE)
def test_the_place_of_a_specs_mistake_is_in_the_package_beside_torch(file: str) -> None:
    broken = function_in(file, "return 1 / 0")
    with pytest.raises(InvalidArgument, match=rf" at {Path(file).name}:2$"):
        ask(row_linear(), "layout", broken, None)


@pytest.mark.parametrize("file", BESIDE)
def test_the_stack_of_a_waiting_rank_shows_the_package_beside_torch(file: str) -> None:
    dump = "\n".join(
        ["Thread 1 (most recent call first):", *(f'  File "{f}", line 2 in g' for f in LIBRARY[:2])]
    )
    assert _stack(f'{dump}\n  File "{file}", line 7 in forward') == [
        f'  File "{file}", line 7 in forward'
    ]


def test_the_name_of_a_class_is_one_line() -> None:
    kind = type("One\nPASS  all", (Exception,), {})
    assert frames.kind_of(kind("text")) == "One PASS all"
    assert frames.in_a_line(kind("text")) == "raised One PASS all: text"


def test_a_name_that_tpcheck_does_not_have_is_left_by_who_asked_for_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'shards'") as left:
        tpcheck.shards  # noqa: B018
    assert frames.through(left.value) == []


def test_what_ends_the_process_is_left_by_who_called_it() -> None:
    with refused(), pytest.raises(SystemExit) as left:
        os._exit(0)
    assert frames.through(left.value) == []


def test_an_assert_without_a_text_says_its_line() -> None:
    with pytest.raises(AssertionError) as own:
        raise_plain()
    assert frames.line_of(own.value) == "raise AssertionError"
    namespace: dict[str, Any] = {"__name__": "torch"}
    exec(compile("def fails():\n    raise AssertionError\n", torch.__file__, "exec"), namespace)
    with pytest.raises(AssertionError) as theirs:
        namespace["fails"]()
    assert frames.line_of(theirs.value).endswith(" at __init__.py:2")
    with pytest.raises(AssertionError) as told:
        raise AssertionError("two")
    assert frames.line_of(told.value) == "two"


def raise_plain() -> None:
    raise AssertionError
