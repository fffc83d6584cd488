"""What is not modelled is told from what a candidate does wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tpcheck.kernels import refusals


def raised(file: str, line: str, given: object) -> BaseException:
    """By `wrap_triton` of a file of this name, which is given this kernel."""
    space: dict[str, Any] = {}
    source = f"def wrap_triton(triton_kernel):\n    {line}\n"
    exec(compile(source, f"/site-packages/{file}", "exec"), space)
    try:
        space["wrap_triton"](given)
    except Exception as error:
        return error
    raise AssertionError(line)


class Interpreted:
    """A kernel, by its module."""


Interpreted.__module__ = "triton.runtime.interpreter"
TORCHS, TRITONS = "torch/_library/triton.py", "triton/runtime/interpreter.py"
REFUSED, MISSING = "raise RuntimeError('no')", "raise NotImplementedError('no')"


@pytest.mark.parametrize(
    ("file", "line", "given", "what"),
    [
        (TORCHS, REFUSED, Interpreted(), "torch.library.wrap_triton of an interpreted kernel"),
        (TORCHS, REFUSED, raised, ""),  # a function that is no kernel: the candidate's mistake
        ("mine/triton.py", REFUSED, Interpreted(), ""),
        (TRITONS, MISSING, None, "Triton's interpreter says 'no'"),
        (TRITONS, REFUSED, None, ""),
        ("mine/interpreter.py", MISSING, None, ""),
    ],
)
def test_what_triton_and_torch_do_not_interpret_is_not_modelled(
    file: str, line: str, given: object, what: str
) -> None:
    found = refusals.unmodelled(raised(file, line, given))
    assert found.startswith(what) and bool(found) is bool(what)


def test_what_was_never_raised_is_nobodys() -> None:
    assert refusals.unmodelled(NotImplementedError("no")) == ""
