"""What `kernel_check` and `Argument` are given, refused where they are declared, or drawn from."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from torch import Tensor

from tpcheck import Argument, Case, Check, InvalidArgument, kernel_check
from tpcheck.process import memory


def twice(x: Tensor) -> Tensor:
    return x * 2


def declared(**given: Any) -> Check:
    arguments = {"x": Argument("rows", "width")}
    return kernel_check(twice, reference=twice, **{"arguments": arguments, **given})


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: declared(sizes={"width": lambda: 4}), "or a function of the sizes so far"),
        (lambda: declared(sizes={"width": lambda a, b: 4}), "or a function of the sizes so far"),
        (lambda: declared(witness=3), "kernel_check(witness=3): give a function of the case"),
        (lambda: Argument("a b"), "Argument(shape=('a b',)): give sizes, or names of sizes in a"),
        (lambda: Argument("rows=3"), "Argument(shape=('rows=3',)): give sizes, or names"),
        (lambda: Argument("n", integers=(0, "a b")), "give two numbers, or names of sizes in a"),
    ],
    ids=["no argument", "two", "witness", "two words", "equals", "an end of two words"],
)
def test_what_can_not_be_drawn_is_told_where_it_is_declared(
    declare: Callable[[], object], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        declare()


@pytest.mark.parametrize("how", [lambda sizes: 2 * sizes["rows"], 4, [1, 2], st.integers(1, 3)])
def test_sizes_are_what_dims_may_be(how: Any) -> None:
    declared(sizes={"rows": 1, "width": how})


def test_a_tensor_for_which_there_is_no_room_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    inputs = declared().spec.inputs

    def case(width: int) -> Case:
        return Case(dims={"rows": 1000, "width": width}, dtype="float32", mesh={"tp": 1})

    assert list(inputs(case(31_000), lambda name, *shape: shape)) == ["x"]
    says = "argument 'x' is 1000 × 32000: a case takes 1.0 GB of memory for it, and 1.0 GB are left"
    with pytest.raises(InvalidArgument, match=says):
        inputs(case(32_000), lambda name, *shape: pytest.fail("it is drawn"))
