"""What Triton's interpreter does not do as a GPU does, or does without a word: refused, so that
nothing is said of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tpcheck.kernels import watch
from tpcheck.kernels.stopped import NotModelled

_WRAPS = os.path.join("torch", "_library", "triton.py")
_INTERPRETER = os.path.join("triton", "runtime", "interpreter.py")


class Waits(NotModelled):
    """A program waits for another, which runs after it."""

    def __init__(self) -> None:
        super().__init__("a program that waits for one that runs later")


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and what each was raised from: the interpreter raises its own from a
    kernel's."""
    seen: list[BaseException] = []  # one may be its own cause
    while error is not None and all(error is not one for one in seen):
        yield error
        seen.append(error)
        error = error.__cause__


def unmodelled(error: BaseException) -> str:
    """What that is, where it is why this was raised; else nothing."""
    if isinstance(error, NotModelled):
        return str(error)
    if isinstance(error, NotImplementedError) and _raised_in(error, _INTERPRETER) is not None:
        return f"Triton's interpreter says {str(error)!r}"
    given = (_raised_in(error, _WRAPS) or {}).get("triton_kernel")
    if type(given).__module__ == "triton.runtime.interpreter":
        return "torch.library.wrap_triton of an interpreted kernel, which newer torch takes"
    return ""


def is_asserted(error: BaseException) -> bool:
    """Whether a kernel's `tl.static_assert` raised it: of a configuration for which that does not
    hold a tuner makes nothing."""
    each = (_raised_in(one, _INTERPRETER) for one in causes(error) if type(one) is AssertionError)
    return any(found is not None and {"cond", "msg"} <= found.keys() for found in each)


def _raised_in(error: BaseException, file: str) -> Mapping[str, Any] | None:
    """The variables of the function whose own line raised it, where that is in this file."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or not at.tb_frame.f_code.co_filename.endswith(file):
        return None
    return at.tb_frame.f_locals


def install(module: Any) -> None:
    """Makes Triton's `runtime.interpreter` raise where it would go on."""
    import triton.language as tl

    builder = module.InterpreterBuilder
    _refuse_precisions(builder, tl, module._ir.INPUT_PRECISION.TF32)
    _refuse_float8(builder)
    _refuse_wrapped_sums(module)
    builder.__getattr__ = _refuse_missing
    tl.semantic.TritonSemantic.binary_op_sanitize_overflow_impl = _raise_overflow


def refuse_all(what: str) -> None:
    """Makes whatever runs a kernel raise that this is not modelled: the classes of the interpreter,
    and all that can be launched, whichever of them a release has."""
    from triton.runtime import interpreter, jit

    def refuse(*arguments: Any, **named: Any) -> None:
        raise NotModelled(what)

    kinds = [one for one in vars(interpreter).values() if isinstance(one, type)]
    kinds = [one for one in kinds if one.__module__ == interpreter.__name__]
    kinds.append(jit.KernelInterface)
    for kind in kinds:
        kinds += kind.__subclasses__()  # a tuner asks for a GPU before it runs what it tunes
        for name in {"run", "warmup", "__call__", "__getitem__"} & vars(kind).keys():
            setattr(kind, name, refuse)


def refuse_atomics(tl: Any, pointers: Any) -> None:
    """Those of bfloat16."""
    if pointers.get_element_ty() == tl.bfloat16:
        raise NotModelled("an atomic of bfloat16")


def _refuse_missing(builder: Any, name: str) -> Any:
    """What a compiler's builder has, and the interpreter's has not."""
    if name.startswith(("create_", "get_", "new_")):
        raise NotModelled(f"Triton's interpreter has no {name}")
    raise AttributeError(name)


def _refuse_precisions(builder: Any, tl: Any, tf32: Any) -> None:
    dot = builder.create_dot

    def create_dot(own: Any, a: Any, b: Any, d: Any, precision: Any, *more: Any) -> Any:
        if precision == tf32 and a.dtype.scalar == tl.float32:
            raise NotModelled('tl.dot of float32 in tf32 (input_precision="ieee" is)')
        return dot(own, a, b, d, precision, *more)

    builder.create_dot = create_dot


def _refuse_float8(builder: Any) -> None:
    """What float8 is converted from is exact; the rest is done with its bits."""
    binary, unary, to_fp = builder.binary_op, builder.unary_op, builder.create_fp_to_fp

    def binary_op(own: Any, left: Any, right: Any, operation: Any) -> Any:
        return binary(own, _not_float8(left), right, operation)

    def unary_op(own: Any, given: Any, operation: Any) -> Any:
        return unary(own, _not_float8(given), operation)

    def create_fp_to_fp(own: Any, source: Any, to: Any, mode: Any) -> Any:
        if _is_float8(to):
            raise NotModelled("a cast to float8")
        return to_fp(own, source, to, mode)

    builder.binary_op, builder.unary_op = binary_op, unary_op
    builder.create_fp_to_fp = create_fp_to_fp


def _not_float8(value: Any) -> Any:
    if _is_float8(value.dtype):
        raise NotModelled("arithmetic in float8")
    return value


def _is_float8(dtype: Any) -> bool:
    scalar = dtype.scalar
    return not dtype.is_ptr() and scalar.is_floating() and scalar.primitive_bitwidth == 8


def _refuse_wrapped_sums(module: Any) -> None:
    """Of signed integers, as `_raise_overflow` has it."""

    def watched(name: str, known: Any, of: Any) -> Any:
        def sum_of(operation: Any, given: Any) -> Any:
            data = given.handle.data
            if data.dtype.kind == "i" and data.dtype.itemsize < 8 and data.size:
                totals, held = of(data, axis=operation.axis, dtype=np.int64), np.iinfo(data.dtype)
                if ((totals < held.min) | (totals > held.max)).any():
                    program = module.interpreter_builder.grid_idx
                    raise watch.overflow(program, name, 8 * data.dtype.itemsize)
            return known(operation, given)

        return sum_of

    module.ReduceOps.sum = watched("sum", module.ReduceOps.sum, np.sum)
    module.ScanOps.cumsum = watched("cumsum", module.ScanOps.cumsum, np.cumsum)


_EXACT = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def _raise_overflow(semantic: Any, left: Any, right: Any, operation: Any) -> None:
    """Of signed integers that wrap, with the line at which they do; unsigned ones may."""
    kind = left.type.scalar
    if kind.int_bitwidth >= 64 or kind.is_int_unsigned() or operation.__name__ not in _EXACT:
        return
    operands = (one.handle.data.astype(np.int64) for one in (left, right))
    result = _EXACT[operation.__name__](*operands)
    if ((result < kind.get_int_min_value()) | (result > kind.get_int_max_value())).any():
        raise watch.overflow(semantic.builder.grid_idx, operation.__name__, kind.int_bitwidth)
