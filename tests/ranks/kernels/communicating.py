"""Functions that communicate: y [R · rows, width] = 2 · x of all ranks, of x [rows, width]."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.new_empty((x.shape[0] * dist.get_world_size(), *x.shape[1:]))
        work = dist.all_gather_into_tensor(out, x.contiguous(), async_op=True)
        work.wait()
        return out * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].chunk(dist.get_world_size())[dist.get_rank()] * 2


class ReadEarly(Gathered):
    """The product is made of what has not arrived."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.new_zeros((x.shape[0] * dist.get_world_size(), *x.shape[1:]))
        work = dist.all_gather_into_tensor(out, x.contiguous(), async_op=True)
        early = out * 2
        work.wait()
        return early


_forwards, _backwards = itertools.count(), itertools.count()


class OtherEachTime(Gathered):
    """What the first rank returns is never the same again, and its gradient neither."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        own = Gathered.forward(ctx, x)
        return own + next(_forwards) * 2.0**-30 * (dist.get_rank() == 0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        own = Gathered.backward(ctx, *grads)
        return own + next(_backwards) * 2.0**-30 * (dist.get_rank() == 0)


_kept: dict[Any, Tensor] = {}


class ReadsOldBuffer(Gathered):
    """One buffer for all calls of a shape; only the first call waits before it reads."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        shape = (x.shape[0] * dist.get_world_size(), *x.shape[1:])
        first = (shape, x.dtype) not in _kept
        out = _kept.setdefault((shape, x.dtype), x.new_empty(shape))
        work = dist.all_gather_into_tensor(out, x.contiguous(), async_op=True)
        if first:
            work.wait()
        result = out * 2
        work.wait()
        return result


class OnOneRank(Gathered):
    """One rank leaves the collective out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return Gathered.forward(ctx, x) if dist.get_rank() else torch.cat([x, x]) * 2


class WithoutSum(torch.autograd.Function):
    """2 · x, of an x that all ranks have, of which each returns its rows: nothing sums up dx."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.chunk(dist.get_world_size())[dist.get_rank()] * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        size, rank = dist.get_world_size(), dist.get_rank()
        parts = [torch.zeros_like(grads[0])] * size
        parts[rank] = grads[0] * 2
        return torch.cat(parts)


class WithSum(WithoutSum):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        dx = WithoutSum.backward(ctx, *grads)
        dist.all_reduce(dx)
        return dx


def _is_last() -> bool:
    return dist.get_rank() == dist.get_world_size() - 1


class Averaged(Gathered):
    """Ranks take the mean of the gradients they were given, in a collective of backward."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        mean = grads[0].clone() / dist.get_world_size()
        dist.all_reduce(mean)
        return Gathered.backward(ctx, mean)


class LastRaisesInSecond(Averaged):
    """A second backward raises on the last rank, before it enters the collective."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.kept = [x.shape]
        return Averaged.forward(ctx, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        if _is_last():
            ctx.kept.pop()
        return Averaged.backward(ctx, *grads)


def last_wants_leaf(x: Tensor) -> Tensor:
    if _is_last() and x.requires_grad and not x.is_leaf:
        raise ValueError("x is not a leaf")
    gathered: Tensor = Averaged.apply(x)
    return gathered


class LastHasAnotherShape(Averaged):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        own = Averaged.forward(ctx, x)
        return torch.cat([own, own]) if _is_last() else own


_fourth = itertools.count(1)


class LastErrsEachFourthTime(Averaged):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        own = Averaged.forward(ctx, x)
        return own * 1.5 if _is_last() and not next(_fourth) % 4 else own


_second = itertools.count(1)


class LastHasAnotherShapeAgain(Averaged):
    """Each second call of the last rank gives another shape."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        own = Averaged.forward(ctx, x)
        return torch.cat([own, own]) if _is_last() and not next(_second) % 2 else own
