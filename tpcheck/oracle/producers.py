"""Which operation makes a tensor of a run, and what that rounds: of large products.

The least bounds pool the squares of one run's errors over rows and columns. In a tensor of millions
a few numbers are larger than their row and column tell, and so are their errors: the operation
itself knows them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from tpcheck.bounds.arithmetic import Arithmetic, Operation
from tpcheck.bounds.operations import variances
from tpcheck.tensors.dispatch import OverCompiled, is_whole

aten = torch.ops.aten

#: Elements from which on a product is noted. With fewer, small cases, of whose elements hardly one
#: is outside by itself, take longer; with more, large ones are studied for one number in a million.
LARGE = 1 << 18
#: What is noted: all factors stay in memory as long as the case does.
_PRODUCTS = frozenset({aten.mm.default, aten.bmm.default, aten.addmm.default})


class Producers(OverCompiled):
    """Notes the large products of what runs under it.

    Args:
        dtype: of the run. What a reference computes in another one rounds otherwise.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self._made: list[tuple[Any, tuple[Any, ...], dict[str, Any], torch.Size]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if is_whole(func):
            return self.whole(func, args, kwargs)
        out = func(*args, **(kwargs or {}))
        if func in _PRODUCTS and out.dtype == self.dtype and out.numel() >= LARGE:
            # not the result: autograd would copy a gradient that somebody else holds
            self._made.append((func, tree_map(_detached, args), kwargs or {}, out.shape))
        return out

    @torch.no_grad()
    def rounded(self, value: Tensor, at: Tensor, how: Arithmetic) -> Tensor | None:
        """The variances of what the product rounds that makes this very tensor, to the last bit, or
        is its transpose; None where none does.

        Args:
            value: of the run.
            at: which of its elements are asked for, by number.
            how: the arithmetic of a candidate.
        """
        places = torch.unravel_index(at, value.shape)
        for func, args, kwargs, shape in reversed(self._made):
            for turned in _turns(value, shape):
                again = func(*args, **kwargs)
                if torch.equal(again, turned):
                    own = places if turned is value else places[::-1]
                    return _variances(how, func, args, kwargs, again, own)
        return None


def _variances(
    how: Arithmetic,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    out: Tensor,
    places: tuple[Tensor, ...],
) -> Tensor | None:
    """Those of some elements of a product; of a matrix its other rows are left out."""
    if out.ndim == 2:
        rows, where = places[0].unique(return_inverse=True)
        *first, a, b = args
        first = [one.expand_as(out)[rows] for one in first]  # what the product is added to
        args, out, places = (*first, a[rows], b), out[rows], (where, places[1])
    op = Operation(func.overloadpacket.__name__, tree_map(_wide, args), kwargs, out.double())
    found = variances(how, op, func)[0]
    return None if found is None else found.each[places]


def _turns(value: Tensor, shape: torch.Size) -> Iterator[Tensor]:
    """The tensor, and its transpose, where they have this shape."""
    if value.shape == shape:
        yield value
    if value.ndim == 2 and value.mT.shape == shape:
        yield value.mT


def _detached(given: Any) -> Any:
    return given.detach() if isinstance(given, Tensor) else given


def _wide(given: Any) -> Any:
    return given.double() if isinstance(given, Tensor) else given
