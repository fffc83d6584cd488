"""An interpreter of Triton with the faults of 3.6.0's, made of the one that is installed, and the
cases of `language` in it. A program:

    TRITON_INTERPRET=1 python -m tests.unit.kernels.stand_in 3.6.0

Args:
    version: what Triton says that it is; of 3.9.0 nothing is fixed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter as module
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.unit.kernels import language
from tpcheck.kernels import interpreter, refusals

handle, builder = module.TensorHandle, module.InterpreterBuilder


def put_back() -> None:
    """The faults, each as that release has it."""
    _of_values()
    _of_functions()
    _of_blocks()


def _of_values() -> None:
    convert, patch = module._implicit_cvt, module._patch_lang_tensor

    def implicit_cvt(argument: Any) -> Any:
        if isinstance(argument, bool):
            return tl.tensor(handle(np.array([argument], np.int32), tl.int1), tl.int1)
        return convert(argument)

    def index(number: Any) -> int:
        if number.handle.data.ndim:  # as newer releases of NumPy say
            raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
        return int(number.handle.data)

    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", index)

    def get_all_ones_value(own: Any, dtype: Any) -> Any:
        return handle(np.full(1, -1, dtype=module._get_np_dtype(dtype)), dtype.scalar)

    module._implicit_cvt, module._patch_lang_tensor = implicit_cvt, patch_lang_tensor
    builder.get_all_ones_value = get_all_ones_value
    del builder.get_bf16


def _of_functions() -> None:
    def binary_op(own: Any, left: Any, right: Any, operation: Any) -> Any:
        dtype, output = left.dtype.scalar, operation(left.data, right.data)
        if not module._validate_np_data_size(output, dtype):
            output = output.astype(module._get_np_dtype(dtype))
        return handle(output, dtype)

    def create_umulhi(own: Any, left: Any, right: Any) -> Any:
        if (kind := left.data.dtype).itemsize == 8:
            high = np.vectorize(lambda x, y: int(x) * int(y) >> 64, otypes=[np.uint64])
            return handle(high(left.data, right.data), left.dtype.scalar)
        wide = [one.data.astype(f"u{2 * kind.itemsize}") for one in (left, right)]
        high_half = np.multiply(*wide) >> (8 * kind.itemsize)
        return handle(high_half.astype(kind), left.dtype.scalar)

    def create_histogram(own: Any, given: Any, bins: int, mask: Any) -> Any:
        numbers = np.where(mask.data, given.data, 0)
        counts = np.histogram(numbers, bins=bins, range=(0, bins))[0].astype(np.int32)
        counts[0] -= np.logical_not(mask.data).sum()
        return handle(counts, tl.int32)

    builder.binary_op, builder.create_umulhi = binary_op, create_umulhi
    builder.create_histogram = create_histogram
    builder.create_minnumf = lambda own, x, y: own.binary_op(x, y, np.minimum)
    builder.create_maxnumf = lambda own, x, y: own.binary_op(x, y, np.maximum)
    builder.create_clampf = lambda own, x, low, high, _: own.ternary_op(x, low, high, np.clip)
    builder.create_fma = lambda own, x, y, z: handle(x.data * y.data + z.data, z.dtype.scalar)


def _of_blocks() -> None:
    materialize, reduce = module.TensorDescHandle.materialize_pointers, module.ReduceOps.apply_impl

    def materialize_pointers(block: Any, *where: Any) -> tuple[Any, Any]:
        pointers, mask = materialize(block, *where)
        return pointers, mask.data

    def apply_impl(operation: Any, given: Any) -> Any:
        for name, functions in {"min": (np.min, np.argmin), "max": (np.max, np.argmax)}.items():
            if operation.combine_fn is getattr(tl.standard, f"_arg{name}_combine_tie_break_left"):
                return operation.min_max(given[0], *functions)
        return reduce(operation, given)

    module.TensorDescHandle.materialize_pointers = materialize_pointers
    module.ReduceOps.apply_impl = apply_impl


def selected() -> str:
    """Of a signed and an unsigned integer; the language of 3.9 makes them alike before."""
    signed, unsigned = (np.array([n], kind) for n, kind in ((-1, np.int64), (1, np.uint64)))
    bits = [handle(signed, tl.int64), handle(unsigned, tl.uint64)]
    found = builder().create_select(handle(np.array([True]), tl.int1), *bits)
    return "" if found.data.dtype == np.int64 else str(found.data.dtype)


@triton.jit
def _scaled(out_ptr):
    bits, one = tl.full([16, 32], 56, tl.uint8), tl.full([16, 1], 127, tl.uint8)
    a = bits.to(tl.float8e4nv, bitcast=True)
    tl.store(out_ptr, tl.sum(tl.dot_scaled(a, one, "e4m3", tl.trans(a), one, "e4m3")))


@triton.jit
def _read(source, out_ptr):
    tl.store(out_ptr, tl.sum(source.load([0, 0])))


def refused(kernel: Any, *given: Any) -> str:
    """Why a kernel is not run; nothing where it is."""
    try:
        kernel[(1,)](*given, torch.zeros(1))
    except Exception as error:
        return next(filter(None, map(refusals.unmodelled, refusals.causes(error))), str(error))
    return ""


if __name__ == "__main__":
    put_back()
    triton.__version__ = sys.argv[1]
    interpreter.install()
    found = {name: language.differs(name) for name in language.CASES}
    rounding = TensorDescriptor.from_tensor(torch.zeros(8, 8), [8, 8], round_f32_to_tf32=True)
    found["bits are selected"] = selected()
    found["scaled blocks"], found["rounding"] = refused(_scaled), refused(_read, rounding)
    print(json.dumps(found))
