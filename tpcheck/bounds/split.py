"""Products split over ranks, in the case's own dtype: `SplitProducts`.

The reference under it rounds where a candidate does whose every product is a sum of partial
products: one run shows how large such errors are, at the cost of the products alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tpcheck.tensors.dispatch import OverCompiled, is_whole

aten = torch.ops.aten


class SplitProducts(OverCompiled):
    """Runs products of floating point as sums of partial products, one after the other, each
    rounded to what it is stored in, and so is each sum: what an all-reduce over `degree` ranks
    leaves that passes sums on.

    Args:
        degree: R, into how many parts the dim that is summed over is split, or its size.
    """

    def __init__(self, degree: int) -> None:
        super().__init__()
        self.degree = degree

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if is_whole(func):
            return self.whole(func, args, kwargs)
        if func in _PRODUCTS and self.degree > 1:
            return self._product(func, *args)
        if func in _ONTO and self.degree > 1:
            first, a, b = args[:3]
            product = self._product(_ONTO[func], a, b)
            beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
            return first * beta + (product if alpha == 1 else product * alpha)
        return func(*args, **kwargs)

    def _product(self, func: Any, a: Tensor, b: Tensor) -> Tensor:
        """a [*, M, K] @ b [*, K, N]."""
        parts = min(self.degree, a.shape[-1])
        if parts < 2:
            return func(a, b)
        pairs = zip(a.tensor_split(parts, -1), b.tensor_split(parts, -2), strict=True)
        first, *others = (func(left, right) for left, right in pairs)
        return sum(others, start=first)


_PRODUCTS = frozenset({aten.mm.default, aten.bmm.default})
_ONTO = {aten.addmm.default: aten.mm.default, aten.baddbmm.default: aten.bmm.default}
