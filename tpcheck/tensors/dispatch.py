"""What modes of ours have in common that see each operator."""

from __future__ import annotations

from typing import Any

from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode


class Dispatch(TorchDispatchMode):
    """Sees the operators that run while it is entered; those of higher order too (`is_whole`)."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler, a second per process, to wrap a class of it


def is_whole(func: Any) -> bool:
    """Whether an operator is one of higher order, as `torch.cond`: no mode sees what it runs."""
    return isinstance(func, HigherOrderOperator)
