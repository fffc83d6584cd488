"""Kernels that are given their tensors in other ways than one by one, or that keep some."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton
from triton.tools.tensor_descriptor import TensorDescriptor

BLOCK = 32


@triton.jit
def _twice_of(source, target):
    at = tl.program_id(0) * 4
    target.store([at, 0], source.load([at, 0]) * 2)


def by_descriptor(x: Tensor) -> Tensor:
    """x [rows, 8] → 2 x."""
    x, y = x.flatten().clone().view(x.shape), torch.empty(x.shape, dtype=x.dtype)
    given = (TensorDescriptor.from_tensor(t, [4, 8]) for t in (x, y))
    _twice_of[(triton.cdiv(x.shape[0], 4),)](*given)
    return y


@triton.jit
def _sum_of(terms, target, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    total = tl.zeros((block,), tl.float32)
    for k in tl.static_range(len(terms)):
        total += tl.load(terms[k] + at, mask=at < count, other=0.0)
    tl.store(target + at, total, mask=at < count)


def by_tuple(x: Tensor) -> Tensor:
    """x → x + x."""
    x, y = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
    _sum_of[(triton.cdiv(x.numel(), BLOCK),)]((x, x), y, x.numel(), BLOCK)
    return y


@triton.jit
def _sum_at(addresses, target, count, skipped, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    total = tl.zeros((block,), tl.float32)
    for k in range(2):
        term = tl.load(addresses + k).to(tl.pointer_type(tl.float32))
        total += tl.load(term + at + skipped, mask=at < count, other=0.0)
    tl.store(target + at, total, mask=at < count)


def _by_address(x: Tensor, skipped: int) -> Tensor:
    terms = x.contiguous(), x.contiguous().clone()
    y = torch.empty(x.shape, dtype=x.dtype)
    addresses = torch.tensor([term.data_ptr() for term in terms])
    grid = (triton.cdiv(x.numel(), BLOCK),)
    _sum_at[grid](addresses, y, x.numel(), skipped, BLOCK)
    return y


def by_address(x: Tensor) -> Tensor:
    """x → x + x, of which one is a tensor of the function's own."""
    return _by_address(x, 0)


_ROOM = torch.zeros(4096)
_ROOMS: list[Tensor] = []


def _with_a_copy_in(room: Tensor, x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
    room[: x.numel()].copy_(x.flatten())
    addresses = torch.tensor([x.data_ptr(), room.data_ptr()])
    _sum_at[(triton.cdiv(x.numel(), BLOCK),)](addresses, y, x.numel(), 0, BLOCK)
    return y


def by_an_address_of_the_module(x: Tensor) -> Tensor:
    """x → x + x, of which one is where it was before the rank was forked."""
    return _with_a_copy_in(_ROOM, x)


def by_an_address_of_the_first_case(x: Tensor) -> Tensor:
    """x → x + x, of which one is where the rank's first case has made room."""
    if not _ROOMS:
        with torch.inference_mode(False):
            _ROOMS.append(torch.zeros(4096))
    return _with_a_copy_in(_ROOMS[0], x)


def beyond_an_address(x: Tensor) -> Tensor:
    """Reads one element behind the tensors."""
    return _by_address(x, 1)


@triton.jit
def _twice(x, y, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + at, tl.load(x + at, mask=at < count) * 2, mask=at < count)


@triton_op("tpcheck_reached::twice", mutates_args={})
def by_triton_op(x: Tensor) -> Tensor:
    """x → 2 x."""
    x, y = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
    wrap_triton(_twice)[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK)
    return y


OF_THE_LIBRARY = torch.ops.tpcheck_reached.twice


class LosesASecondGradient(torch.autograd.Function):
    """x → 2 x, whose second backward has nothing for x."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.done = False
        return 2 * x

    @staticmethod
    def backward(ctx, dy: Tensor) -> Tensor | None:
        done, ctx.done = ctx.done, True
        return None if done else 2 * dy


_MASKS: dict[int, Tensor] = {}


def by_a_cached_mask(x: Tensor, causal: bool) -> Tensor:
    """x [rows, width] → x · mask, whose mask is kept by its width alone."""
    width = x.shape[-1]
    if width not in _MASKS:
        _MASKS[width] = mask_of(width, causal)
    return x @ _MASKS[width].to(x.dtype)


def mask_of(width: int, causal: bool) -> Tensor:
    whole = torch.ones(width, width)
    return whole.tril() if causal else whole


def by_its_mask(x: Tensor, causal: bool) -> Tensor:
    """The same, right."""
    return x @ mask_of(x.shape[-1], causal).to(x.dtype)


_KNOWN: dict[int, Tensor] = {}


def by_a_cached_exponential(x: Tensor, weight: Tensor) -> Tensor:
    """x · e^weight, the exponential kept by where the weight is."""
    if weight.data_ptr() not in _KNOWN:
        _KNOWN.clear()
        _KNOWN[weight.data_ptr()] = weight.detach().exp()
    return x * _KNOWN[weight.data_ptr()]


_OF_VERSION: dict[tuple[int, int], Tensor] = {}


def by_a_cached_exponential_of_its_version(x: Tensor, weight: Tensor) -> Tensor:
    """The same, which sees that the weight changes, and not that another one has its memory."""
    key = weight.data_ptr(), weight._version
    if key not in _OF_VERSION:
        _OF_VERSION.clear()
        _OF_VERSION[key] = weight.detach().exp()
    return x * _OF_VERSION[key]


def summed_by_its_layout(x: Tensor) -> Tensor:
    """Rows' sums, whose last bits go by strides and alignment, as of what is vectorised."""
    aligned = x.stride(0) == x.shape[-1] and x.data_ptr() % 16 == 0
    return x.sum(-1) * (1.0 if aligned else 1.0 + 2.0**-23)


_called = {"times": 0}


def wrong_each_fortieth_time(x: Tensor) -> Tensor:
    """x → 2 x."""
    _called["times"] += 1
    return x * (2 if _called["times"] % 40 else 3)


_copies: dict[tuple[object, ...], Tensor] = {}
_places: dict[int, int] = {}


class KeepsItsWeight(torch.autograd.Function):
    """x · weight, with the weight that backward has had first for an address and a version."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        key = weight.data_ptr(), weight._version, weight.shape, weight.dtype
        return dy * _copies.setdefault(key, weight.detach().clone()), (dy * x).sum(0)


class KeepsItsUpstream(KeepsItsWeight):
    """The same, with the upstream gradient that an address has had first."""

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        dy = _copies.setdefault((dy.data_ptr(), dy.shape, dy.stride()), dy.clone())
        return dy * weight, (dy * x).sum(0)


class KeepsItsUpstreamInFewPlaces(KeepsItsWeight):
    """The same, where addresses soon recur: those after the seventh are the sixth one again."""

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        at = _places.setdefault(dy.data_ptr(), len(_places))
        dy = _copies.setdefault(("at", at if at < 7 else 5), dy.clone())
        return dy * weight, (dy * x).sum(0)
