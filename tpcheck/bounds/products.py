"""Which products of matrices some tensors are: another formula of what follows adds up the same
terms in another order, and its errors are as large as these, however small their sum is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tpcheck.bounds.arithmetic import Terms

#: Operations whose first argument is asked about.
ASKED = frozenset({"_softmax_backward_data"})
_PRODUCTS = frozenset({"mm", "bmm"})
#: How many are kept. The gradient of one factor is made between that of the other and its use.
_LAST = 4


class Products:
    """The last products of a run."""

    def __init__(self) -> None:
        self._last: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=_LAST)

    def made(self, name: str, factors: Sequence[Any], out: Tensor) -> None:
        """Notes `out` if it is one. It is kept, so that its memory is not another's."""
        if name in _PRODUCTS and out.is_contiguous():
            self._last.append((out, factors[0], factors[1]))

    def terms(self, tensor: Tensor) -> Terms | None:
        """Those of a tensor that is a view of one of them."""
        for out, left, right in self._last:
            if tensor.untyped_storage().data_ptr() == out.untyped_storage().data_ptr():
                squares = (left.double() ** 2 @ right.double() ** 2).contiguous()
                at = tensor.storage_offset() - out.storage_offset()
                own = squares.as_strided(tensor.shape, tensor.stride(), at)
                return Terms(own, left.shape[-1])
        return None
