"""Interpreters of releases of Triton before 3.9, brought to what that of 3.9 computes.

What the language means is a release's own and stays: its sums, its reductions, its block pointers.
Replaced is what an interpreter computes otherwise than the same release's compiler; each function
names the release in whose interpreter it was fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tpcheck.kernels.stopped import NotModelled

Release = tuple[int, int]


def of(version: str) -> Release | None:
    """Major and minor number of a version; None where it has none that can be read."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def install(module: Any, release: Release) -> None:
    """Replaces, in Triton's `runtime.interpreter` of a release, what later ones fixed."""
    for fixed, repair in _REPAIRS:
        if release < fixed:
            repair(module)


# ---- fixed in 3.7


def _count_in_loops(module: Any) -> None:
    """A number of Triton's as the end of a `range`: of one element, with any NumPy."""
    patch = module._patch_lang_tensor

    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda number: int(number.handle.data.item()))

    module._patch_lang_tensor = patch_lang_tensor


# ---- fixed in 3.8


def _leave_nan_aside(module: Any) -> None:
    """`tl.maximum`, `tl.minimum` and `tl.clamp` give the other number, unless they are to propagate
    NaN; so do maxima with their index."""
    builder, none = module.InterpreterBuilder, module._ir.PROPAGATE_NAN.NONE
    clip, reduce = builder.create_clampf, module.ReduceOps.apply_impl

    def create_clampf(own: Any, given: Any, low: Any, high: Any, propagates: Any) -> Any:
        if propagates != none:
            return clip(own, given, low, high, propagates)
        return own.create_minnumf(own.create_maxnumf(given, low), high)

    def apply_impl(operation: Any, given: Any) -> Any:
        functions = _with_index(module.tl.standard).get(operation.combine_fn)
        if functions is None:
            return reduce(operation, given)
        return operation.min_max(given[0], *functions)

    builder.create_minnumf = lambda own, left, right: own.binary_op(left, right, np.fmin)
    builder.create_maxnumf = lambda own, left, right: own.binary_op(left, right, np.fmax)
    builder.create_clampf = create_clampf
    module.ReduceOps.apply_impl = apply_impl


def _with_index(standard: Any) -> dict[Any, tuple[Callable[..., Any], Callable[..., Any]]]:
    """What a reduction combines by → the functions of its value and of its index."""
    least, most = (np.nanmin, np.nanargmin), (np.nanmax, np.nanargmax)
    ties = ("left", "fast")
    return {
        **{getattr(standard, f"_argmin_combine_tie_break_{tie}"): least for tie in ties},
        **{getattr(standard, f"_argmax_combine_tie_break_{tie}"): most for tie in ties},
    }


def _select_bits(module: Any) -> None:
    """One of two integers, as bits: of a signed and an unsigned one NumPy made a float."""
    builder, handle = module.InterpreterBuilder, module.TensorHandle

    def create_select(own: Any, condition: Any, left: Any, right: Any) -> Any:
        other = right.data.astype(left.data.dtype)
        return handle(np.where(condition.data, left.data, other), left.dtype.scalar)

    builder.create_select = create_select


def _give_bools(module: Any) -> None:
    """A bool that a kernel is given is one bit; it was an int32 that was said to be."""
    convert, handle, tl = module._implicit_cvt, module.TensorHandle, module.tl

    def implicit_cvt(argument: Any) -> Any:
        if not isinstance(argument, bool):
            return convert(argument)
        return tl.tensor(handle(np.array([argument]), tl.int1), tl.int1)

    module._implicit_cvt = implicit_cvt


# ---- fixed in 3.9


def _add_bits(module: Any) -> None:
    """Bits wrap: one and one is zero."""
    builder, handle = module.InterpreterBuilder, module.TensorHandle
    compute = builder.binary_op

    def binary_op(own: Any, left: Any, right: Any, operation: Any) -> Any:
        if left.data.dtype != np.bool_ or right.data.dtype != np.bool_:
            return compute(own, left, right, operation)
        wide = operation(left.data.astype(np.int8), right.data.astype(np.int8))
        return handle((wide & 1).astype(np.bool_), left.dtype.scalar)

    builder.binary_op = binary_op


def _make_constants(module: Any) -> None:
    """Of bfloat16, which there were none of, and all bits of an unsigned integer."""
    builder, handle, tl = module.InterpreterBuilder, module.TensorHandle, module.tl
    all_ones = builder.get_all_ones_value

    def get_bf16(own: Any, value: float) -> Any:
        return handle(np.array([value], np.float32), tl.bfloat16)

    def get_all_ones_value(own: Any, dtype: Any) -> Any:
        kind = module._get_np_dtype(dtype)
        if kind.kind != "u":
            return all_ones(own, dtype)
        return handle(np.array([np.iinfo(kind).max], kind), dtype.scalar)

    builder.get_bf16, builder.get_all_ones_value = get_bf16, get_all_ones_value


def _round_once(module: Any) -> None:
    """A fused multiplication and addition; on x86 that of float64 in 64 digits."""
    handle = module.TensorHandle

    def create_fma(own: Any, x: Any, y: Any, z: Any) -> Any:
        exact = x.data.astype(np.longdouble) * y.data + z.data
        return handle(exact.astype(z.data.dtype), z.dtype.scalar)

    module.InterpreterBuilder.create_fma = create_fma


def _high_half(module: Any) -> None:
    """`tl.umulhi` takes the bits of signed integers as those of unsigned ones."""
    handle = module.TensorHandle

    def create_umulhi(own: Any, left: Any, right: Any) -> Any:
        kind = left.data.dtype
        width = 8 * kind.itemsize
        x, y = (one.data.view(f"u{kind.itemsize}").astype(object) for one in (left, right))
        high = np.asarray(x * y >> width, object).astype(f"u{kind.itemsize}")
        return handle(high.view(kind), left.dtype.scalar)

    module.InterpreterBuilder.create_umulhi = create_umulhi


def _count_in_bins(module: Any) -> None:
    """`tl.histogram` in int32, and without what is in no bin: the last one counted its end."""
    handle, tl = module.TensorHandle, module.tl

    def create_histogram(own: Any, given: Any, bins: int, mask: Any) -> Any:
        numbers = given.data
        kept = (numbers >= 0) & (numbers < bins)
        if mask is not None:
            kept = kept & mask.data.astype(bool)
        counts = np.bincount(numbers[kept].astype(np.int64), minlength=bins)
        return handle(counts.astype(np.int32), tl.int32)

    module.InterpreterBuilder.create_histogram = create_histogram


def _hold_masks(module: Any) -> None:
    """The masks of block pointers and descriptors are values like those of other accesses."""
    for name in ("BlockPointerHandle", "TensorDescHandle"):
        if (home := getattr(module, name, None)) is not None:
            home.materialize_pointers = _holding(module, home.materialize_pointers)


def _holding(module: Any, materialize: Callable[..., Any]) -> Callable[..., Any]:
    def materialize_pointers(block: Any, *where: Any) -> tuple[Any, Any]:
        pointers, mask = materialize(block, *where)
        return pointers, module.TensorHandle(mask, module.tl.int1)

    return materialize_pointers


def _refuse_what_is_rounded_otherwise(module: Any) -> None:
    """Products of scaled blocks, and descriptors that round to tf32."""
    convert = module._implicit_cvt

    def dot_scaled(own: Any, *given: Any) -> Any:
        raise NotModelled("tl.dot_scaled (with Triton 3.9 it is)")

    def implicit_cvt(argument: Any) -> Any:
        if getattr(argument, "round_f32_to_tf32", False):
            raise NotModelled("a descriptor with round_f32_to_tf32 (with Triton 3.9 it is)")
        return convert(argument)

    module.TritonSemantic.dot_scaled = dot_scaled
    module._implicit_cvt = implicit_cvt


#: The release in whose interpreter it was fixed, and what fixes it in those before.
_REPAIRS: tuple[tuple[Release, Callable[[Any], None]], ...] = (
    ((3, 7), _count_in_loops),
    ((3, 8), _leave_nan_aside),
    ((3, 8), _select_bits),
    ((3, 8), _give_bools),
    ((3, 9), _add_bits),
    ((3, 9), _make_constants),
    ((3, 9), _round_once),
    ((3, 9), _high_half),
    ((3, 9), _count_in_bins),
    ((3, 9), _hold_masks),
    ((3, 9), _refuse_what_is_rounded_otherwise),
)
