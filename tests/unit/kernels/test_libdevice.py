"""Functions of libdevice are what their names say, by torch and by Python's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tpcheck.kernels import libdevice
from tpcheck.kernels.stopped import NotModelled

X = np.array([-2.5, -1.0, -0.75, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 3.0, 7.25])

SINGLE, DOUBLE = "exp tanh sinh expm1 cos floor", "erf erfc atan asinh fabs ceil"
#: Symbol → the same of one number, as Python's `math` or a formula has it.
ONE: dict[str, Callable[[float], float]] = {
    **{
        f"__nv_{name}f": getattr(math, name)
        for name in ["exp", "tanh", "sinh", "expm1", "cos", "floor"]
    },
    **{
        f"__nv_{name}": getattr(math, name)
        for name in ["erf", "erfc", "atan", "asinh", "fabs", "ceil"]
    },
    "__nv_erff": math.erf,
    "__nv_fast_expf": math.exp,
    "__nv_fast_sinf": math.sin,
    "__nv_exp2f": lambda x: 2.0**x,
    "__nv_exp10": lambda x: 10.0**x,
    "__nv_cbrtf": lambda x: math.copysign(abs(x) ** (1 / 3), x),
    "__nv_normcdff": lambda x: math.erfc(-x / math.sqrt(2)) / 2,
    "__nv_erfcx": lambda x: math.exp(x * x) * math.erfc(x),
    "__nv_sinpif": lambda x: math.sin(math.pi * x),
    "__nv_cospi": lambda x: math.cos(math.pi * x),
    "__nv_saturatef": lambda x: min(max(x, 0.0), 1.0),
    "__nv_roundf": lambda x: math.copysign(math.floor(abs(x) + 0.5), x),
    "__nv_rintf": lambda x: float(round(x)),
    "__nv_isnanf": lambda x: 0.0,
    "__nv_finitef": lambda x: 1.0,
    "__nv_signbitf": lambda x: float(math.copysign(1.0, x) < 0),
}
POSITIVE: dict[str, Callable[[float], float]] = {
    "__nv_sqrtf": math.sqrt,
    "__nv_fsqrt_rn": math.sqrt,
    "__nv_rsqrt": lambda x: 1 / math.sqrt(x),
    "__nv_frsqrt_rn": lambda x: 1 / math.sqrt(x),
    "__nv_drcp_rn": lambda x: 1 / x,
    "__nv_rcbrtf": lambda x: x ** (-1 / 3),
    "__nv_logf": math.log,
    "__nv_log1p": math.log1p,
    "__nv_fast_log2f": math.log2,
    "__nv_lgammaf": math.lgamma,
    "__nv_acoshf": lambda x: math.acosh(x) if x >= 1 else math.nan,
}
TWO: dict[str, Callable[[float, float], float]] = {
    "__nv_fdiv_rn": lambda x, y: x / y,
    "__nv_fast_fdividef": lambda x, y: x / y,
    "__nv_dsub_rn": lambda x, y: x - y,
    "__nv_powf": lambda x, y: x**y,
    "__nv_fmodf": math.fmod,
    "__nv_atan2f": math.atan2,
    "__nv_hypot": math.hypot,
    "__nv_copysignf": math.copysign,
    "__nv_fdimf": lambda x, y: max(x - y, 0.0),
}


def same(given: Any, wanted: list[float]) -> None:
    torch.testing.assert_close(
        torch.tensor(np.asarray(given, dtype=np.float64)),
        torch.tensor(wanted, dtype=torch.float64),
        rtol=1e-12,
        atol=1e-14,
        equal_nan=True,
    )


@pytest.mark.parametrize("symbol", ONE)
def test_of_one_number(symbol: str) -> None:
    same(libdevice._function(symbol)(X), [ONE[symbol](x) for x in X.tolist()])


@pytest.mark.parametrize("symbol", POSITIVE)
def test_of_a_positive_number(symbol: str) -> None:
    x = X[X > 0]
    with np.errstate(invalid="ignore"):
        same(libdevice._function(symbol)(x), [POSITIVE[symbol](one) for one in x.tolist()])


@pytest.mark.parametrize("symbol", TWO)
def test_of_two_numbers(symbol: str) -> None:
    x = X[X > 0]
    y = x[::-1].copy()
    wanted = [TWO[symbol](*pair) for pair in zip(x.tolist(), y.tolist(), strict=True)]
    same(libdevice._function(symbol)(x, y), wanted)


def test_a_product_and_a_sum_are_rounded_once() -> None:
    x = np.array([1.0 + 2.0**-30])
    same(libdevice._function("__nv_fma")(x, x, -np.ones(1)), [2.0**-29 + 2.0**-60])


@pytest.mark.parametrize("symbol", ["__nv_j0f", "__nv_fadd_rz", "__nv_float_as_int", "__nv_ffs"])
def test_what_is_not_modelled_is_refused(symbol: str) -> None:
    with pytest.raises(NotModelled, match=symbol):
        libdevice._function(symbol)
