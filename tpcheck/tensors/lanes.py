"""Several runs at once: a tensor whose numbers differ between them, which to whoever computes with
it is one tensor. An operator costs what it costs once, and not once for each run.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.tensors.names import tensors_of

_aten = torch.ops.aten
#: Operators whose result does not depend on what the tensor held that they write into.
_FILLS = frozenset({"bernoulli_", "uniform_", "normal_", "exponential_", "random_"})
_functorch: Any = torch._C._functorch
_Nothing = torch._C._dispatch_keys(torch.empty(0)) - torch._C._dispatch_keys(torch.empty(0))


class Apart(Exception):
    """The runs can't be made at once: they go different ways, or an operator does not take them."""


class Lanes(Tensor):
    """A tensor in several runs.

    Args:
        each: [run, ...], contiguous along the runs or not; no two runs may share memory.
    """

    each: Tensor

    @staticmethod
    def __new__(cls, each: Tensor) -> Lanes:
        made: Any = Tensor._make_wrapper_subclass(
            cls, each.shape[1:], strides=each.stride()[1:], dtype=each.dtype, device=each.device
        )
        made.each = each
        found: Lanes = made
        return found

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Lanes({len(self.each)} × {list(self.shape)})"

    def data_ptr(self) -> int:
        """Nobody reads its memory: it has none of its own."""
        raise Apart("the memory of several runs is asked for")

    def __dlpack__(self, *given: Any, **named: Any) -> Any:
        raise Apart("the memory of several runs is asked for")

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        how = _nature(func)
        kwargs = kwargs or {}
        if how.detaches:
            return Lanes(args[0].each.detach())
        given = list(_tensors(args, kwargs))
        if how.writes and not isinstance(args[0], Lanes):
            raise Apart(f"{func} writes numbers of several runs into a tensor of all")
        if how.draws:
            return _drawn(func, args, kwargs, writes=how.writes)
        if how.asks:
            return _asked(func, args, kwargs, given)
        dtypes = {tensor.dtype for tensor in given}
        if how.pointwise and len(dtypes) == 1 and not kwargs.get("out"):
            return _each_number(func, args, kwargs, given, writes=how.writes)
        return _mapped(func, args, kwargs, given, writes=how.writes)


_once = False


@contextlib.contextmanager
def drawn_once() -> Iterator[None]:
    """What is drawn inside is the same in every run, as where each begins with one seed. Elsewhere
    each run would draw numbers of its own, which would pass for rounding."""
    global _once
    before, _once = _once, True
    try:
        yield
    finally:
        _once = before


class _Nature:
    """What is known of an operator before it runs."""

    def __init__(self, func: Any) -> None:
        self.detaches = func is _aten.detach.default
        self.writes = bool(func._schema.is_mutable)
        tags = func.tags
        self.asks = torch.Tag.data_dependent_output in tags
        self.asks = self.asks or torch.Tag.dynamic_output_shape in tags
        self.draws = torch.Tag.nondeterministic_seeded in tags
        self.pointwise = torch.Tag.pointwise in tags


_nature = functools.cache(_Nature)


def lanes_of(tensor: Tensor, count: int) -> Lanes:
    """A tensor that is the same in so many runs."""
    return Lanes(tensor.detach().expand(count, *tensor.shape).clone())


def spread_over(module: nn.Module, count: int) -> nn.Module:
    """The same module, in place, with parameters and buffers of floating point in so many runs;
    tied ones once."""
    made: dict[int, Tensor] = {}
    for name, tensor in tensors_of(module).items():
        if not tensor.is_floating_point():
            continue
        if id(tensor) not in made:
            own: Tensor = lanes_of(tensor, count)
            if isinstance(tensor, nn.Parameter):
                own = nn.Parameter(own, tensor.requires_grad)
            made[id(tensor)] = own
        path, _, last = name.rpartition(".")
        owner = module.get_submodule(path)
        held = owner._parameters if last in owner._parameters else owner._buffers
        held[last] = made[id(tensor)]  # type: ignore[assignment]
    return module


def in_run(tensor: Tensor, run: int) -> Tensor:
    """The numbers of one of the runs."""
    return tensor.each[run] if isinstance(tensor, Lanes) else tensor


# ---- many tensors as one


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """All numbers of some tensors of one dtype, one after the other."""
    count = next((len(t.each) for t in tensors if isinstance(t, Lanes)), None)
    if count is None:
        return torch.cat([t.reshape(-1) for t in tensors])
    each = (t.each if isinstance(t, Lanes) else t.expand(count, *t.shape) for t in tensors)
    return Lanes(torch.cat([own.reshape(count, -1) for own in each], 1))


def parted(whole: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The parts of what was joined, in the shapes that it was joined of."""
    sizes = [t.numel() for t in like]
    if not isinstance(whole, Lanes):
        return [p.view(t.shape) for p, t in zip(whole.split(sizes), like, strict=True)]
    parts = zip(whole.each.split(sizes, 1), like, strict=True)
    return [Lanes(part.reshape(-1, *t.shape)) for part, t in parts]


def write(tensor: Tensor, numbers: Tensor) -> None:
    """Puts numbers into a tensor, as no mode and no graph sees.

    Raises:
        Apart: they are of several runs, and the tensor is of all.
    """
    if isinstance(tensor, Lanes):
        tensor.each.copy_(numbers.each if isinstance(numbers, Lanes) else numbers)
    elif isinstance(numbers, Lanes):
        raise Apart("numbers of several runs are written into a tensor of all")
    else:
        tensor.copy_(numbers)


# ---- how an operator is run


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (inside for inside in value if isinstance(inside, Tensor))


def _replaced(value: Any, of: Any) -> Any:
    """An argument with `of(tensor)` in place of its `Lanes`."""
    if isinstance(value, Lanes):
        return of(value)
    if isinstance(value, (list, tuple)) and any(isinstance(v, Lanes) for v in value):
        return type(value)(_replaced(inside, of) for inside in value)
    return value


def _called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], of: Any) -> Any:
    own = [_replaced(value, of) for value in args]
    return func(*own, **{name: _replaced(value, of) for name, value in kwargs.items()})


def _asked(func: Any, args: Any, kwargs: Any, given: list[Tensor]) -> Any:
    """What numbers decide: one answer, where it is the same in every run. Floats that are picked by
    masks or indices stay apart."""
    decides = func is not _aten.index.Tensor

    def of(tensor: Lanes) -> Any:
        if tensor.is_floating_point() and not decides:
            return tensor
        first = tensor.each[0]
        if not torch.equal(tensor.each, first.expand(tensor.each.shape)):
            raise Apart(f"{func} does not give the same in every run")
        return first

    same = [_replaced(value, of) for value in args]
    named = {name: _replaced(value, of) for name, value in kwargs.items()}
    if any(isinstance(t, Lanes) for t in _tensors(tuple(same), named)):
        return _mapped(func, tuple(same), named, given, writes=False)
    return func(*same, **named)


def _drawn(func: Any, args: Any, kwargs: Any, *, writes: bool) -> Any:
    """Random numbers that all runs have: one tensor, or in place of what a tensor holds."""
    if not _once:
        raise Apart(f"{func} draws random numbers")
    name = func.overloadpacket.__name__
    filled = args[0] if writes or name.endswith("_like") else None
    if writes and name not in _FILLS:
        raise Apart(f"{func} draws by what is in the tensor that it writes into")

    def of(tensor: Lanes) -> Tensor:
        first = tensor.each[0]
        if tensor is not filled and not torch.equal(tensor.each, first.expand_as(tensor.each)):
            raise Apart(f"{func} draws by what is not the same in every run")
        return first

    out = _called(func, args, kwargs, of)
    if not writes:
        return out
    args[0].each.copy_(out.clone())
    return args[0]


def _each_number(func: Any, args: Any, kwargs: Any, given: list[Tensor], *, writes: bool) -> Any:
    """An operator of one number of each tensor: the runs are one more dim, in front."""
    most = max(tensor.ndim for tensor in given)

    def of(tensor: Lanes) -> Tensor:
        missing = most - tensor.ndim
        return tensor.each[(slice(None), *[None] * missing)] if missing else tensor.each

    out = _called(func, args, kwargs, of)
    if writes:
        return args[0]
    return Lanes(out) if isinstance(out, Tensor) else _wrapped(out, Lanes)


def _mapped(func: Any, args: Any, kwargs: Any, given: list[Tensor], *, writes: bool) -> Any:
    """Any other operator, by torch's own rule for one dim more."""
    count = next(len(tensor.each) for tensor in given if isinstance(tensor, Lanes))
    outside = torch._C._dispatch_tls_local_include_set()
    with torch.no_grad(), torch._C._ForceDispatchKeyGuard(outside, _Nothing):
        _functorch._set_vmap_fallback_warning_enabled(False)
        level = _functorch._vmap_increment_nesting(count, "different")
        try:

            def inside(tensor: Lanes) -> Any:
                return _functorch._add_batch_dim(tensor.each, 0, level)

            def outside_again(tensor: Tensor) -> Tensor:
                if not _functorch.is_batchedtensor(tensor):
                    return tensor
                return Lanes(_functorch._remove_batch_dim(tensor, level, count, 0))

            out = _called(func, args, kwargs, inside)
            return args[0] if writes else _wrapped(out, outside_again)
        finally:
            _functorch._vmap_decrement_nesting()
            _functorch._set_vmap_fallback_warning_enabled(True)


def _wrapped(out: Any, of: Any) -> Any:
    if isinstance(out, Tensor):
        return of(out)
    if isinstance(out, (list, tuple)):
        return type(out)(of(one) if isinstance(one, Tensor) else one for one in out)
    return out
