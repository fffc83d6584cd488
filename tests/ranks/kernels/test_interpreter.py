"""What Triton's interpreter does not do as a GPU does is not checked, and said; autotuned kernels
run in each of their configurations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from torch import Tensor

from tests.ranks.kernels import odd_kernels
from tpcheck import Argument, kernel_check
from tpcheck.engines.engine import Engine
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict

OPTIONS = Options(examples=12, corpus=None, shrink_cases=10, dtypes=("float32",))


def run(
    fn: Callable[[Tensor], Tensor], engine: Engine, dtype: str = "float32", least: int = 1
) -> CheckResult:
    from hypothesis import strategies

    check = kernel_check(
        fn,
        name="subject",
        reference=lambda x: 2 * x,
        arguments={"x": Argument("width")},
        sizes={"width": lambda sizes: strategies.integers(least, 70)},
    )
    return Search(check, engine, replace(OPTIONS, dtypes=(dtype,))).run()


@pytest.mark.parametrize(
    ("fn", "dtype", "what"),
    [
        (odd_kernels.with_assembly, "float32", "inline_asm"),
        (odd_kernels.with_atomics, "bfloat16", "atomic of bfloat16"),
        (odd_kernels.with_float8, "float32", "float8"),
        (odd_kernels.with_tf32, "float32", "tf32"),
        (odd_kernels.with_a_map, "float32", "Triton's interpreter has no new_block"),
        (odd_kernels.with_bessels_function, "float32", "__nv_j0f"),
    ],
)
def test_what_is_not_modelled_is_not_checked(
    fn: Callable[[Tensor], Tensor], dtype: str, what: str, gloo: Engine
) -> None:
    found = run(fn, gloo, dtype)
    assert found.verdict is Verdict.UNKNOWN and found.reason is not None
    assert found.reason.startswith("not checked: ") and what in found.reason


@pytest.mark.parametrize(
    ("fn", "dtype"),
    [
        (odd_kernels.with_atomics, "float32"),
        (odd_kernels.with_tf32, "float16"),
        pytest.param(odd_kernels.with_ieee, "float32", marks=pytest.mark.sweep),
        (odd_kernels.with_a_scalar, "bfloat16"),
        (odd_kernels.with_a_cast_loop, "float32"),
        (odd_kernels.with_libdevice, "bfloat16"),
        pytest.param(odd_kernels.with_libdevice, "float32", marks=pytest.mark.sweep),
        pytest.param(odd_kernels.autotuned, "float32", marks=pytest.mark.sweep),
        (odd_kernels.autotuned_in_parts, "float32"),
        (odd_kernels.autotuned_where_it_compiles, "float32"),
        (odd_kernels.with_an_exchange, "float32"),
    ],
)
def test_what_is_modelled_passes(fn: Callable[[Tensor], Tensor], dtype: str, gloo: Engine) -> None:
    found = run(fn, gloo, dtype)
    assert found.verdict is Verdict.PASS, found.reason


def test_the_number_of_a_loop_overflows_as_an_int32(gloo: Engine) -> None:
    found = run(odd_kernels.with_a_loop_that_overflows, gloo, least=33).counterexample
    assert found is not None and found.diagnosis.code == "integer-overflow"


def test_a_configuration_that_is_wrong_is_named(gloo: Engine) -> None:
    found = run(odd_kernels.autotuned_for_one_grid, gloo, least=5).counterexample
    assert found is not None and found.diagnosis.code == "wrong-configuration"
    assert "BLOCK=4" in found.diagnosis.message and "BLOCK=64" in found.diagnosis.message
