"""Functions of CUDA's libdevice in Triton's interpreter, which has none, and Triton's own that a
kernel's module imports by name, which the interpreter replaces in Triton's modules alone.

A function is found by the symbol that Triton would link: its tables of dtypes hold here as well.
What is not rounded by itself is computed in float64 and rounded once; on a GPU it is up to some
units in the last place off (CUDA's "Math API", accuracy of libdevice's functions).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from tpcheck.kernels.stopped import NotModelled


def _by_torch(name: str) -> Callable[[Any], Any]:
    function = getattr(torch.special, name)
    return lambda x: function(torch.from_numpy(np.array(x))).numpy()


def _away_from_zero(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _fused(x: Any, y: Any, z: Any) -> Any:
    return (x.astype(np.longdouble) * y + z).astype(np.float64)


_OF_NUMPY = """ceil copysign cos cosh exp exp2 expm1 fabs floor fmod hypot log log10 log1p log2 rint
sin sinh sqrt tan tanh trunc"""
_INVERSE = "sin cos tan sinh cosh tanh tan2"
_FAST = "cos exp log log2 log10 sin tan"
#: Symbol, without `__nv_` and the `f` of float32 → the function of float64 arrays.
_REAL: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in _OF_NUMPY.split()},
    **{f"a{name}": getattr(np, f"arc{name}") for name in _INVERSE.split()},
    **{f"fast_{name}": getattr(np, name) for name in _FAST.split()},
    "cbrt": np.cbrt,
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2.0)),
    "erf": _by_torch("erf"),
    "erfc": _by_torch("erfc"),
    "erfcx": _by_torch("erfcx"),
    "erfinv": _by_torch("erfinv"),
    "exp10": partial(np.power, 10.0),
    "fast_exp10": partial(np.power, 10.0),
    "fast_fdivide": np.divide,
    "fast_pow": np.power,
    "abs": np.abs,
    **dict.fromkeys(("fma", "fma_rn", "fmaf_rn"), _fused),
    "fdim": lambda x, y: np.where(x > y, x - y, np.where(x <= y, 0.0, np.nan)),
    "lgamma": _by_torch("gammaln"),
    "nearbyint": np.rint,
    "normcdf": _by_torch("ndtr"),
    "normcdfinv": _by_torch("ndtri"),
    "pow": np.power,
    "powi": np.power,
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "round": _away_from_zero,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2.0)),
}
#: With one rounding, to nearest: of float32 `f…_rn`, of float64 `d…_rn`. Their float64 results
#: are exact, or so near that float32's rounding is the same.
_ROUNDED: dict[str, Callable[..., Any]] = {
    "add_rn": np.add,
    "div_rn": np.divide,
    "mul_rn": np.multiply,
    "rcp_rn": np.reciprocal,
    "rsqrt_rn": lambda x: 1.0 / np.sqrt(x),
    "sqrt_rn": np.sqrt,
    "sub_rn": np.subtract,
}
#: What gives 0 or 1, whole symbols.
_BITS: dict[str, Callable[..., Any]] = {
    **{name: np.isnan for name in ("isnanf", "isnand")},
    **{name: np.isinf for name in ("isinff", "isinfd")},
    **{name: np.isfinite for name in ("finitef", "isfinited")},
    **{name: np.signbit for name in ("signbitf", "signbitd")},
}


def _function(symbol: str) -> Callable[..., Any]:
    name = symbol.removeprefix("__nv_")
    found = _BITS.get(name) or _REAL.get(name) or _REAL.get(name.removesuffix("f"))
    if name[0] in "fd":
        found = found or _ROUNDED.get(name[1:])
    if found is None:
        raise NotModelled(f"libdevice's {symbol}")
    return found


def install(module: Any) -> None:
    """Gives them to Triton's `runtime.interpreter`."""
    import triton.language as tl
    from triton.language.extra import libdevice as stubs
    from triton.language.extra.cuda import libdevice as cuda

    def compute(
        builder: Any, library: str, path: str, symbol: str, given: Any, to: Any, pure: bool
    ) -> Any:
        function, dtype = _function(symbol), module._get_np_dtype(to.scalar)
        with np.errstate(all="ignore"):
            data = function(*(one.data.astype(np.float64) for one in given))
            return module.TensorHandle(data.astype(dtype), to.scalar)

    def bound(builtin: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            return builtin(*given, **{**named, "_semantic": module.interpreter_semantic})

        return call

    def refuse(name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            raise NotModelled(f"libdevice's {name}, which CUDA has not")

        return call

    module.InterpreterBuilder.create_extern_elementwise = compute
    for name, value in list(vars(cuda).items()):
        if tl.core.is_builtin(value):
            setattr(cuda, name, bound(value))
    by_stub = {}
    for name, stub in list(vars(stubs).items()):
        if callable(stub):
            by_stub[stub] = getattr(cuda, name, None) or refuse(name)
            setattr(stubs, name, by_stub[stub])
    _replace_by_name(module, tl, bound, by_stub)


def _replace_by_name(
    module: Any, tl: Any, bound: Callable[..., Any], by_stub: dict[Any, Any]
) -> None:
    """In the globals of each function that is about to run."""
    patch = module._patch_lang

    def patch_lang(fn: Any) -> Any:
        scope, named = patch(fn), fn.__globals__
        for name, value in list(named.items()):
            if type(value).__name__ != "function":
                continue
            if value in by_stub:
                named[name] = by_stub[value]
            elif tl.core.is_builtin(value):
                named[name] = bound(value)
        return scope

    module._patch_lang = patch_lang
