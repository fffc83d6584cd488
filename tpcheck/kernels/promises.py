"""What a kernel promises the compiler, held against its numbers. In Triton's interpreter it does
nothing; on a GPU what is loaded or stored is another where it is not so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpcheck.kernels import watch

Numbers = NDArray[Any]
Kept = Callable[[Numbers, int, int], bool]


def multiples(numbers: Numbers, step: int, value: int) -> bool:
    """Along the last dim, whether each run of neighbours begins with a multiple: of `offsets` whose
    first is 64, and which go up one by one, it may be promised that they are multiples of 64."""
    begins = np.ones(numbers.shape, bool)
    begins[..., 1:] = numbers[..., 1:] - numbers[..., :-1] != step
    return not (numbers[begins] % value).any()


def contiguous(numbers: Numbers, step: int, value: int) -> bool:
    """Along the last dim, whether each `value` of them go up one by one."""
    return _alike(numbers[..., 1:] - numbers[..., :-1] == step, value)


def constant(numbers: Numbers, step: int, value: int) -> bool:
    """Along the last dim, whether each `value` of them are equal."""
    return _alike(numbers[..., 1:] == numbers[..., :-1], value)


def _alike(follows: NDArray[np.bool_], value: int) -> bool:
    """Whether each follows on the one before, but for the first of each `value`."""
    first = (np.arange(follows.shape[-1]) + 1) % value == 0
    return bool((follows | first).all())


_PROMISES: dict[str, Kept] = {
    "multiple_of": multiples,
    "max_contiguous": contiguous,
    "max_constancy": constant,
}


def install(module: Any) -> None:
    """Has Triton's `runtime.interpreter` raise where one is not kept."""
    import triton.language as tl

    patch = module._patch_lang_core

    def patch_lang_core(lang: Any, scope: Any) -> None:
        patch(lang, scope)
        for name in _PROMISES:
            scope.set_attr(lang, name, partial(_hold, module, tl, name))

    def by_name(name: str) -> Callable[..., Any]:
        return lambda semantic, given, values: _hold(module, tl, name, given, values)

    def create_assume(builder: Any, condition: Any) -> None:
        if not condition.data.all():
            raise watch.unkept(builder.grid_idx, "assume", ())

    module._patch_lang_core = patch_lang_core
    module.InterpreterBuilder.create_assume = create_assume
    for name in _PROMISES:
        setattr(tl.semantic.TritonSemantic, name, by_name(name))


def _hold(module: Any, tl: Any, name: str, given: Any, values: Any, **_: Any) -> Any:
    """The tensor as it is; values are one per dim."""
    if not isinstance(given, tl.tensor):
        return given
    values = values if isinstance(values, (list, tuple, tl.tuple)) else [values]
    wanted = tuple(int(getattr(value, "value", value)) for value in values)
    numbers, dtype = given.handle.data, given.dtype.scalar
    if len(wanted) != max(1, len(given.shape)):
        raise ValueError(f"tl.{name} of {len(given.shape)} dims has {len(wanted)} values")
    step = max(1, dtype.element_ty.primitive_bitwidth // 8) if dtype.is_ptr() else 1
    numbers = numbers.reshape(-1) if len(wanted) == 1 else numbers
    for dim, value in enumerate(wanted):
        if not _PROMISES[name](np.moveaxis(numbers, dim, -1).astype(np.int64), step, value):
            program = module.interpreter_builder.grid_idx
            raise watch.unkept(program, name, wanted)
    return given
