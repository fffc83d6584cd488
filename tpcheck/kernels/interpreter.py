"""Triton's interpreter, made to compute as a GPU does.

As released it computes with the bits of bfloat16 numbers, truncates casts to bfloat16, sums half
precisions in one rounding, lets int32 wrap silently, and gives comparisons the dtype of what they
compare, which a mask that is broadcast keeps. `install` replaces those functions in this process.
It refuses releases that it does not know: what it replaces is private. Those before 3.9 it brings
to 3.9's (`earlier`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from tpcheck.kernels import (
    bfloat16,
    configurations,
    earlier,
    launches,
    libdevice,
    loops,
    memory,
    orders,
    promises,
    refusals,
    watch,
)
from tpcheck.process import branches
from tpcheck.process.after_import import after

#: The releases of Triton under whose interpreter our kernels were held against torch, in every
#: dtype (docs/kernels.md says how). Another may have other parts to replace.
KNOWN = ((3, 6), (3, 7), (3, 8), (3, 9))
_LAUNCH = threading.RLock()
_BFLOAT16 = "bf16"  # the name of Triton's


def interprets() -> bool:
    """Whether this process runs kernels in the interpreter."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def is_loaded() -> bool:
    """Whether there is an interpreter that runs kernels in this process."""
    return interprets() and "triton.runtime.interpreter" in sys.modules


def install_once_imported() -> None:
    """`install`, now or when Triton is imported: its import takes a second, and code that has no
    kernels needs none of this."""
    if "triton.runtime.interpreter" in sys.modules:
        install()
    else:
        after("triton", install)


@cache
def install() -> None:
    """Replaces what computes otherwise than a GPU does, once per process. Does nothing without
    Triton; the kernels of a release that is not known raise `stopped.NotModelled`."""
    if importlib.util.find_spec("triton") is None:
        return
    import triton

    if (release := earlier.of(triton.__version__)) not in KNOWN:
        known = ", ".join(f"{major}.{minor}" for major, minor in KNOWN)
        refusals.refuse_all(
            f"kernels of Triton {triton.__version__}: its interpreter computes bfloat16 wrongly "
            f"unless parts of it are replaced, and known are those of {known}"
        )
        return
    from triton.runtime import interpreter

    earlier.install(interpreter, release)
    _Faithful(interpreter).install()


class _Faithful:
    """The functions that are replaced, in one module of Triton's."""

    def __init__(self, module: Any) -> None:
        import triton.language as tl

        self.module, self.tl = module, tl
        self.handle, self.builder = module.TensorHandle, module.InterpreterBuilder

    def install(self) -> None:
        self._hold_values()
        _give_floats(self.module, self.tl)
        self._cast()
        refusals.install(self.module)
        libdevice.install(self.module)
        loops.install(self.module)
        memory.install(self.module)
        promises.install(self.module)
        self._compare()
        self._sum()
        self._launch()
        configurations.install(_LAUNCH)
        options = self.module.InterpreterOptions(debug=True)  # int32 that overflows raises
        self.module.interpreter_builder.options = options

    def _is_bfloat16(self, dtype: Any) -> bool:
        return bool(dtype.scalar.name == _BFLOAT16)  # asked of every value: equality takes longer

    # ---- what a value is

    def _hold_values(self) -> None:
        """A value is a float32 that bfloat16 has; each operation's result is rounded to one."""
        known, is_bfloat16 = self.module._get_np_dtype, self._is_bfloat16
        fits = self.module._validate_np_data_size

        of_name = {_BFLOAT16: np.dtype(np.float32)}

        def np_dtype(dtype: Any) -> Any:
            name = dtype.scalar.name
            if name not in of_name:
                of_name[name] = known(dtype.scalar)
            return of_name[name]

        def valid(data: Any, dtype: Any) -> bool:
            return True if is_bfloat16(dtype) else fits(data, dtype)

        def after_init(handle: Any) -> None:
            if is_bfloat16(handle.dtype):
                if handle.data.dtype.kind == "f":
                    handle.data = bfloat16.rounded(handle.data)
            elif not fits(handle.data, handle.dtype):
                raise ValueError(f"{handle.data.dtype} data of a {handle.dtype}")

        self.module._get_np_dtype = np_dtype
        self.module._validate_np_data_size = valid
        self.handle.__post_init__ = after_init

    # ---- casts

    def _cast(self) -> None:
        cast, to_fp = self.builder.cast_impl, self.builder.create_fp_to_fp
        bitcast, absolute = self.builder.create_bitcast, self.builder.create_fabs
        handle, is_bfloat16, tl = self.handle, self._is_bfloat16, self.tl
        np_dtype, modes = self.module._get_np_dtype, self.module._ir.ROUNDING_MODE

        def cast_impl(builder: Any, source: Any, to: Any) -> Any:
            if is_bfloat16(source.dtype) or is_bfloat16(to):
                return handle(source.data.astype(np_dtype(to.scalar)), to.scalar)
            if to.scalar == tl.float32 and source.dtype.scalar == tl.float64:
                return handle(source.data.astype(np.float32), to.scalar)
            return cast(builder, source, to)

        def create_fp_to_fp(builder: Any, source: Any, to: Any, mode: Any) -> Any:
            if is_bfloat16(to):
                wide = source
                if source.dtype.scalar.primitive_bitwidth == 8:
                    wide = to_fp(builder, source, tl.float32, mode)
                data = wide.data.astype(np.float32)
                cut = bfloat16.towards_zero(data) if mode == modes.RTZ else data
                return handle(cut, to.scalar)
            if is_bfloat16(source.dtype):
                wide = handle(source.data.astype(np.float32), tl.float32)
                if to.scalar in (tl.float32, tl.float64, tl.float16):
                    return handle(wide.data.astype(np_dtype(to.scalar)), to.scalar)
                return to_fp(builder, wide, to, mode)
            return to_fp(builder, source, to, mode)

        def create_bitcast(builder: Any, source: Any, to: Any) -> Any:
            data = source.data
            if is_bfloat16(source.dtype):
                data = bfloat16.to_bits(data)
            if is_bfloat16(to):
                return handle(bfloat16.from_bits(data), to.scalar)
            return bitcast(builder, handle(data, _unsigned(tl, source.dtype)), to)

        def create_fabs(builder: Any, given: Any) -> Any:
            if is_bfloat16(given.dtype):
                return handle(np.abs(given.data), given.dtype.scalar)
            return absolute(builder, given)

        self.builder.cast_impl = cast_impl
        self.builder.create_fp_to_fp = create_fp_to_fp
        self.builder.create_bitcast = create_bitcast
        self.builder.create_int_to_ptr = self.builder.create_ptr_to_int = create_bitcast
        self.builder.create_fabs = create_fabs

    # ---- comparisons and sums

    def _compare(self) -> None:
        """What compares gives bits, whatever it compares."""
        handle, one_bit = self.handle, self.tl.int1

        def bits(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda builder, left, right: handle(
                function(builder, left, right).data.astype(bool), one_bit
            )

        for name in dir(self.builder):
            if name.startswith(("create_icmp", "create_fcmp")):
                setattr(self.builder, name, bits(getattr(self.builder, name)))

    def _sum(self) -> None:
        """A sum of half precisions is rounded at each addition, by halves, as programs of a GPU
        add up."""
        whole, reduce, tl = self.module.ReduceOps.sum, self.module.ReduceOps, self.tl
        rounding = {tl.bfloat16: bfloat16.rounded, tl.float16: lambda data: data.astype(np.float16)}

        def by_halves(operation: Any, given: Any) -> Any:
            rounds = rounding.get(given.dtype.scalar)
            if rounds is None:
                return whole(operation, given)
            data = given.handle.data
            axis = operation.axis
            if axis is None:
                data, axis = data.reshape(-1), 0
            while (count := data.shape[axis]) > 1:
                first, second = np.split(data, [count // 2], axis=axis)
                data = rounds(first.astype(np.float32) + second.astype(np.float32))
            if not operation.keep_dims:
                data = np.squeeze(data, axis) if operation.axis is not None else data[0]
            elif operation.axis is None:
                data = data.reshape([1] * given.handle.data.ndim)
            return operation.to_tensor(data, given.dtype)

        reduce.sum = by_halves

    # ---- launches

    def _launch(self) -> None:
        executor = self.module.GridExecutor
        launch = _patched_once(self.module, executor.__call__)

        def watched(executed: Any, *arguments: Any, **named: Any) -> None:
            given = [*zip(executed.arg_names, arguments, strict=False), *named.items()]
            launches.tell(executed.fn.__name__)
            # one at a time: the interpreter has its state in its module
            # a GPU says nothing of NaN
            with _LAUNCH, np.errstate(all="ignore"), branches.unnoted():
                with watch.launch(executed.fn.__name__, given, executed.constexprs) as first:
                    launch(executed, *arguments, **named)
                if first is not None and first.clocks.orders and not first.races:
                    again = watch.launch(executed.fn.__name__, given)
                    run = partial(launch, executed, *arguments, **named)
                    orders.reverse(self.module.interpreter_builder, first.changes, again, run)

        executor.__call__ = watched
        place = self.builder.set_grid_idx

        def begun(builder: Any, *index: int) -> None:
            watch.turn()
            place(builder, *index)

        self.builder.set_grid_idx = begun


def _patched_once(module: Any, launch: Callable[..., None]) -> Callable[..., None]:
    """A launch in which the language is replaced once in each module of functions that it calls: as
    released, at every call, a third of a kernel's time."""
    replace, done = module._patch_lang, set[int]()

    def patch_lang(fn: Any) -> Any:
        own = id(fn.__globals__)
        if own in done:
            return module._LangPatchScope()
        done.add(own)
        return replace(fn)

    def once(*arguments: Any, **named: Any) -> None:
        done.clear()
        try:
            launch(*arguments, **named)
        finally:
            done.clear()

    module._patch_lang = patch_lang
    return once


def _unsigned(tl: Any, dtype: Any) -> Any:
    """The dtype of a bfloat16's bits; any other as it is."""
    return tl.uint16 if dtype.scalar == tl.bfloat16 and not dtype.is_ptr() else dtype


def _give_floats(module: Any, tl: Any) -> None:
    """A float that a kernel is given is a float32, as a launch on a GPU makes it: with one of
    Python's, as with a constant, a block would keep its dtype."""
    known = module._implicit_cvt

    def convert(argument: Any) -> Any:
        if not isinstance(argument, float):
            return known(argument)
        data = np.array([argument], dtype=np.float32)
        return tl.tensor(module.TensorHandle(data, tl.float32), tl.float32)

    module._implicit_cvt = convert
