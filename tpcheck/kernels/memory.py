"""Loads, stores and atomics in Triton's interpreter: watched, and with lanes that a mask leaves out
undefined, as they are on a GPU. The interpreter gives zeros there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tpcheck.kernels import bfloat16, refusals, watch
from tpcheck.kernels.held import Held
from tpcheck.kernels.stopped import NotModelled
from tpcheck.vocabulary import Access

#: One after another in lanes that are left out: sums show the first, a maximum the second and a
#: minimum the third, since Triton's leave NaN aside.
_FLOATS = (np.nan, np.inf, -np.inf)
#: So small that what is computed of it, and left out of the result, does not overflow; of four
#: bytes and more it is no index of what cases have.
_INTEGER, _INDEX = 3, 2**15 + 3
#: NaN in float8, by Triton's name; e4b15 has none, and this is its largest.
_FLOAT8 = {"fp8e5": 0x7F, "fp8e4nv": 0x7F, "fp8e4b15": 0x7F, "fp8e4b8": 0x80, "fp8e5b16": 0x80}


#: How often one element is looked at, with nothing between, until its program is said to wait.
_WAITS = 1000


def install(module: Any) -> None:
    """Replaces them in Triton's `runtime.interpreter`."""
    import triton.language as tl

    _Memory(module, tl).install()


class _Memory:
    """The functions of one module of Triton's."""

    def __init__(self, module: Any, tl: Any) -> None:
        self.module, self.tl = module, tl
        self.handle, self.builder = module.TensorHandle, module.InterpreterBuilder
        self.memory, self.numpy = module._interpreter, module._get_np_dtype
        self.semantics, self.block = module._ir.MEM_SEMANTIC, module._ir.MEM_SYNC_SCOPE.CTA
        self._other = True  # whether a load that runs has one
        self._tells: list[Callable[[], None]] | None = None
        self._again: tuple[tuple[Any, ...], int] = ((), 0)
        self._looked_at = _told_of(module.TensorHandle)

    def install(self) -> None:
        self._load()
        self._store()
        self._atomics()
        self._atomic_loads()

    def _access(
        self, what: Access, builder: Any, pointers: Any, mask: Any, values: Any = None
    ) -> None:
        dtype = pointers.get_element_ty()
        size = 8 if dtype.is_ptr() else max(1, dtype.primitive_bitwidth // 8)
        watch.access(what, builder.grid_idx, pointers.data, size, mask, values)
        if what is not Access.LOAD and (changes := watch.changes()) is not None:
            changes.append(Held.now(self.memory, pointers.data, mask, size))
        if pointers.data.size > 1:
            self._again = ((), 0)
            return
        this = (what, builder.grid_idx, int(pointers.data.reshape(-1)[0]))
        self._again = (this, self._again[1] + 1 if this == self._again[0] else 0)
        if self._again[1] >= _WAITS:
            raise refusals.Waits

    # ---- loads and stores

    def _read(self, pointers: Any, mask: Any, instead: Any) -> Any:
        dtype = pointers.get_element_ty()
        if dtype != self.tl.bfloat16:
            found = self.memory.load(pointers.data, mask, instead, self.numpy(dtype))
            return self.handle(found, dtype)
        bits = bfloat16.to_bits(instead)
        found = self.memory.load(pointers.data, mask, bits, np.dtype(np.uint16))
        return self.handle(bfloat16.from_bits(found), dtype)

    def _poison(self, dtype: Any, mask: Any) -> Any:
        """What no kernel may count on, where the mask is off. Pointers are zeros, which are in no
        tensor."""
        kind = self.numpy(dtype)
        if kind.kind == "f":
            return np.array(_FLOATS, kind)[(np.cumsum(~mask).reshape(mask.shape) - 1) % 3]
        integer = _INDEX if kind.itemsize >= 4 else _INTEGER
        number = 0 if dtype.is_ptr() else _FLOAT8.get(dtype.name, integer)
        return np.full(mask.shape, number, kind)

    def _load(self) -> None:
        load = self.tl.semantic.TritonSemantic.load

        def load_with(semantic: Any, pointers: Any, mask: Any, other: Any, *more: Any) -> Any:
            self._other = other is not None  # a single zero looks like none further down
            return load(semantic, pointers, mask, other, *more)

        def create_masked_load(
            builder: Any, pointers: Any, mask: Any, other: Any, *more: Any, **named: Any
        ) -> Any:
            is_volatile = named.get("is_volatile", more[-1] if more else False)
            kept = np.broadcast_to(mask.data.astype(bool), pointers.data.shape)
            self._access(Access.ATOMIC if is_volatile else Access.LOAD, builder, pointers, kept)
            if other is not None:
                return self._read(pointers, kept, other.data)
            dtype = pointers.get_element_ty()
            if self._other or kept.all():
                return self._read(pointers, kept, np.zeros(kept.shape, self.numpy(dtype)))
            watch.undefined()
            return self._read(pointers, kept, self._poison(dtype, kept))

        self.tl.semantic.TritonSemantic.load = load_with
        self.builder.create_masked_load = create_masked_load

    def _store(self) -> None:
        def create_masked_store(
            builder: Any, pointers: Any, value: Any, mask: Any, *more: Any, **named: Any
        ) -> None:
            self._write(Access.STORE, builder, pointers, value, mask.data.astype(bool))

        self.builder.create_masked_store = create_masked_store

    def _write(self, what: Access, builder: Any, pointers: Any, value: Any, mask: Any) -> None:
        is_bfloat16 = pointers.get_element_ty() == self.tl.bfloat16
        left = bfloat16.to_bits(value.data) if is_bfloat16 else value.data
        self._access(what, builder, pointers, mask, left if what is Access.STORE else None)
        self.memory.store(pointers.data, left, mask)

    # ---- atomics

    def _atomics(self) -> None:
        change, swap = _changing(self.module), self.builder.create_atomic_cas

        def create_atomic_rmw(
            builder: Any, op: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any
        ) -> Any:
            refusals.refuse_atomics(self.tl, pointers)
            kept = np.broadcast_to(mask.data.astype(bool), pointers.data.shape)
            self._access(_kind(scope == self.block, Access.STORE), builder, pointers, kept)
            found = change(builder, op, pointers, value, mask, sem, scope)
            if not kept.all():
                found.data = np.where(kept, found.data, self._poison(found.dtype, kept))
            return self._ordering(builder, pointers, kept, sem, scope, found)

        def create_atomic_cas(
            builder: Any, pointers: Any, compared: Any, value: Any, sem: Any, scope: Any
        ) -> Any:
            refusals.refuse_atomics(self.tl, pointers)
            self._access(_kind(scope == self.block, Access.STORE), builder, pointers, np.True_)
            found = swap(builder, pointers, compared, value, sem, scope)
            swapped = np.broadcast_to(found.data == compared.data, pointers.data.shape)
            return self._ordering(builder, pointers, swapped, sem, scope, found, read=~swapped)

        self.builder.create_atomic_rmw = create_atomic_rmw
        self.builder.create_atomic_cas = create_atomic_cas
        for name in ("atomic_max", "atomic_min"):
            self._whole(name)

    def _whole(self, name: str) -> None:
        """Of floats these are two atomics, of which the result is put together."""
        semantic = self.tl.semantic.TritonSemantic
        known = getattr(semantic, name)

        def whole(own: Any, *arguments: Any) -> Any:
            self._tells = []
            try:
                found = known(own, *arguments)
            finally:
                tells, self._tells = self._tells, None
            if tells:
                self._when_looked_at(found.handle, tells)
            return found

        setattr(semantic, name, whole)

    def _atomic_loads(self) -> None:
        def create_atomic_load(builder: Any, pointers: Any, mask: Any, sem: Any, scope: Any) -> Any:
            kept = np.broadcast_to(mask.data.astype(bool), pointers.data.shape)
            self._access(_kind(scope == self.block, Access.LOAD), builder, pointers, kept)
            found = self._read(pointers, kept, self._poison(pointers.get_element_ty(), kept))
            none = np.zeros_like(kept)
            return self._ordering(builder, pointers, none, sem, scope, found, read=kept)

        def create_atomic_store(
            builder: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any
        ) -> None:
            kept = np.broadcast_to(mask.data.astype(bool), pointers.data.shape)
            self._write(_kind(scope == self.block, Access.STORE), builder, pointers, value, kept)
            self._ordering(builder, pointers, kept, sem, scope)

        def create_atomic_poll(
            builder: Any, pointers: Any, expected: Any, timeout: Any, sem: Any, scope: Any
        ) -> Any:
            every = self.handle(np.ones(pointers.data.shape, bool), self.tl.int1)
            found = create_atomic_load(builder, pointers, every, sem, scope)
            met = found.data == expected.data
            if not met.all() and not isinstance(timeout, self.handle):
                raise refusals.Waits
            return self.handle(met, self.tl.int1)

        self.builder.create_atomic_load = create_atomic_load
        self.builder.create_atomic_store = create_atomic_store
        self.builder.create_atomic_poll = create_atomic_poll

    def _ordering(
        self,
        builder: Any,
        pointers: Any,
        written: Any,
        sem: Any,
        scope: Any,
        found: Any = None,
        read: Any = None,
    ) -> Any:
        """Notes what an atomic orders, where it writes and where it reads alone."""
        if scope == self.block:
            return found
        both = sem == self.semantics.ACQUIRE_RELEASE
        acquires = both or sem == self.semantics.ACQUIRE
        releases = both or sem == self.semantics.RELEASE
        tells = []
        for lanes, ends in ((written, releases), (read, False)):
            if lanes is not None and lanes.any():
                how = {"acquires": acquires, "releases": ends}
                tells.append(watch.atomic(builder.grid_idx, pointers.data, lanes, **how))
        real = [tell for tell in tells if tell is not None]
        if found is not None and real:
            self._when_looked_at(found, real)
        return found

    def _when_looked_at(self, found: Any, tells: list[Callable[[], None]]) -> None:
        if self._tells is not None:
            self._tells += tells
        else:
            found.__class__, found.tell = self._looked_at, partial(_call_all, tells)


def _changing(module: Any) -> Callable[..., Any]:
    """The interpreter's atomics, which swap integers alone: floats as those of their bits."""
    handle, update = module.TensorHandle, module.InterpreterBuilder.create_atomic_rmw

    def change(builder: Any, op: Any, pointers: Any, value: Any, *more: Any) -> Any:
        kind = value.data.dtype
        if op != module._ir.ATOMIC_OP.XCHG or kind.kind != "f":
            return update(builder, op, pointers, value, *more)
        if kind.itemsize < 4:
            raise NotModelled(f"tl.atomic_xchg of {value.dtype}")
        bits = handle(value.data.view(f"i{kind.itemsize}"), value.dtype)
        found = update(builder, op, pointers, bits, *more)
        return handle(found.data.view(kind), value.dtype.scalar)

    return change


def _kind(own_block: bool, alone: Access) -> Access:
    """What an atomic is for other programs: none where its scope is its own block."""
    return alone if own_block else Access.ATOMIC


def _call_all(tells: list[Callable[[], None]]) -> None:
    for tell in tells:
        tell()


def _told_of(handle: Any) -> type:
    """A handle that tells when its numbers are looked at."""

    class LookedAt(handle):
        @property
        def data(self) -> Any:
            if (tell := self.__dict__.pop("tell", None)) is not None:
                tell()
            return self.__dict__["data"]

        @data.setter
        def data(self, numbers: Any) -> None:
            self.__dict__["data"] = numbers

    return LookedAt
