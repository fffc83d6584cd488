"""Functions that `torch.compile` made as subjects: it is the compiled code that is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tpcheck import Argument, InvalidArgument, kernel_check
from tpcheck.engines.engine import Engine
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict

OPTIONS = Options(examples=6, corpus=None, shrink_cases=6)
SHAPES = {"x": Argument("rows", "width"), "y": Argument("rows", "width")}


def product(x: Tensor, y: Tensor) -> Tensor:
    return torch.sigmoid(x) * y


def miscompiled(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
    """A backend with a fault."""

    def run(*given: Any) -> Any:
        return [out * 1.5 for out in graph(*given)]

    return run


@torch.compile(backend="eager", dynamic=False)
def total(x: Tensor) -> Tensor:
    return x.sum() * 2


def of_many_sizes(x: Tensor, y: Tensor) -> Tensor:
    """Compiled anew for each of twelve sizes, where torch gives up after eight."""
    sums = [total(x.new_ones(size)) for size in range(2, 14)]
    return product(x, y) + 0 * sums[0]


@torch.compiler.disable
def eagerly(x: Tensor, y: Tensor) -> Tensor:
    return product(x, y)


def decorated(x: Tensor, y: Tensor) -> Tensor:
    return fast(x, y) + 0


fast = torch.compile(product, backend="aot_eager")
dynamic = torch.compile(product, backend="aot_eager", dynamic=True)
wrong = torch.compile(product, backend=miscompiled)
left_out = torch.compile(lambda x, y: eagerly(x, y), backend="eager")


def run(fn: Any, engine: Engine) -> CheckResult:
    check = kernel_check(fn, name="subject", reference=product, arguments=SHAPES)
    return Search(check, engine, OPTIONS).run()


@pytest.mark.parametrize(
    "fn",
    [
        fast,
        pytest.param(dynamic, marks=pytest.mark.sweep),
        pytest.param(decorated, marks=pytest.mark.sweep),
    ],
    ids=["static", "dynamic", "inside"],
)
def test_a_right_one_passes_in_more_sizes_than_torch_compiles(fn: Any, gloo: Engine) -> None:
    found = run(fn, gloo)
    assert found.verdict is Verdict.PASS and found.left == [], found


def test_what_only_the_compiler_does_is_said_to_be_its_own(gloo: Engine) -> None:
    found = run(wrong, gloo).counterexample
    assert found is not None
    assert found.first_divergence == "output (forward), only where torch.compile is on"


@pytest.mark.parametrize(
    ("fn", "says"),
    [(left_out, "made no graph of it"), (of_many_sizes, "recompile_limit")],
    ids=["nothing", "limit"],
)
def test_what_ran_eagerly_is_not_checked(fn: Any, says: str, gloo: Engine) -> None:
    found = run(fn, gloo)
    assert found.verdict is Verdict.UNKNOWN and says in str(found.reason)


def test_one_without_a_name_is_refused_in_a_line(gloo: Engine) -> None:
    with pytest.raises(InvalidArgument, match="assign it in a module"):
        run(torch.compile(product, backend="eager"), gloo)
