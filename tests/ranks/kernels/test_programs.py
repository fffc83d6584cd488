"""Programs of a launch that meet in memory race unless their atomics order them; what a mask leaves
out and what is promised to the compiler count as on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import strategies
from torch import Tensor

from tests.ranks.kernels import programs
from tpcheck import Argument, kernel_check
from tpcheck.engines.engine import Engine
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict

Function = Callable[[Tensor], Tensor]
OPTIONS = Options(examples=8, corpus=None, shrink_cases=6, dtypes=("float32",))


def run(fn: Function, reference: Function, engine: Engine, dtype: str = "float32") -> CheckResult:
    sizes: dict[str, Any] = {
        "rows": lambda _: strategies.integers(3, 6),
        "width": lambda _: strategies.integers(5, 40),
    }
    check = kernel_check(
        fn,
        name="subject",
        reference=reference,
        arguments={"x": Argument("rows", "width", gradient=False)},
        sizes=sizes,
        memory=("contiguous",),
        families=("normal",),
    )
    return Search(check, engine, replace(OPTIONS, dtypes=(dtype,))).run()


def columns(x: Tensor) -> Tensor:
    return x.sum(0)


def rows(x: Tensor) -> Tensor:
    return x.sum(-1)


def largest(x: Tensor) -> Tensor:
    return x.amax(-1)


def everything(x: Tensor) -> Tensor:
    return x.sum()


def twice(x: Tensor) -> Tensor:
    return 2 * x


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        pytest.param(programs.locked, columns, marks=pytest.mark.sweep),
        (programs.arriving, everything),
        (partial(programs.promising, what="kept"), twice),
        pytest.param(programs.random, twice, marks=pytest.mark.sweep),
    ],
    ids=["locked", "last", "promised", "random"],
)
def test_what_atomics_order_and_what_wraps_by_definition_is_right(
    fn: Function, reference: Function, gloo: Engine
) -> None:
    found = run(fn, reference, gloo)
    assert found.verdict is Verdict.PASS, found.counterexample


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        pytest.param(partial(programs.locked, how="tries once"), columns, id="once"),
        *(
            pytest.param(fn, reference, id=name, marks=pytest.mark.sweep)
            for name, fn, reference in (
                ("unlock", partial(programs.locked, how="unlocks relaxed"), columns),
                ("kept", partial(programs.adding, kept=True), everything),
                ("relaxed", partial(programs.arriving, sem="relaxed"), everything),
                ("number", partial(programs.arriving, last=False), everything),
                ("early", partial(programs.locked, how="unlocks early"), columns),
                ("release", partial(programs.arriving, sem="release"), everything),
                ("acquire", partial(programs.arriving, sem="acquire"), everything),
                ("load", partial(programs.adding, kept=False), everything),
            )
        ),
    ],
)
def test_what_only_the_order_of_this_run_makes_right_is_a_race(
    fn: Function, reference: Function, gloo: Engine
) -> None:
    found = run(fn, reference, gloo).counterexample
    assert found is not None and found.diagnosis.code == "race"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("is_largest", [False, True], ids=["sum", "largest"])
def test_lanes_that_a_mask_leaves_out_are_no_zeros(
    dtype: str, is_largest: bool, gloo: Engine
) -> None:
    fn = partial(programs.without_other, largest=is_largest)
    found = run(fn, largest if is_largest else rows, gloo, dtype)
    assert found.verdict is Verdict.FAIL
    assert found.counterexample is not None
    told = found.counterexample.diagnosis
    loads = programs._unmasked.fn.__code__.co_firstlineno + 6
    assert told.code != "unwritten-memory" or f"_unmasked:{loads} loads" in told.message
    assert told.code == "unwritten-memory" or is_largest


@pytest.mark.parametrize("along", [False, True], ids=["sum", "cumsum"])
def test_a_sum_of_integers_that_wraps_is_named(along: bool, gloo: Engine) -> None:
    def exact(x: Tensor) -> Tensor:
        return torch.full((x.shape[0],), x.shape[1] * 2**30)

    found = run(partial(programs.counted, along=along), exact, gloo).counterexample
    assert found is not None and found.diagnosis.code == "integer-overflow"
    assert f"{'cumsum' if along else 'sum'} of int32 overflows" in found.diagnosis.message


def test_an_index_that_a_mask_leaves_out_is_outside_of_a_table(gloo: Engine) -> None:
    def exact(x: Tensor) -> Tensor:
        return x.flatten()[:1].expand(x.shape[0], 4)

    found = run(programs.looked_up, exact, gloo).counterexample
    assert found is not None and found.diagnosis.code == "out-of-bounds"


@pytest.mark.parametrize("what", ["assume", "multiple_of", "max_contiguous", "max_constancy"])
def test_a_promise_that_is_not_kept_is_named(what: str, gloo: Engine) -> None:
    found = run(partial(programs.promising, what=what), twice, gloo).counterexample
    assert found is not None and found.diagnosis.code == "broken-promise"
    assert f"tl.{what}" in found.diagnosis.message
