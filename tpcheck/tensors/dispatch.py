"""What modes of ours have in common that see each operator."""

from __future__ import annotations

import sys
from typing import Any

from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode


class Dispatch(TorchDispatchMode):
    """Sees the operators that run while it is entered; those of higher order too (`is_whole`).
    What would be compiled under it runs eagerly."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler, a second per process, to wrap a class of it


class OverCompiled(Dispatch):
    """One that leaves the compiler alone: it is off while something compiles, and on when that
    runs. Under another one torch compiles with the mode in it, and what it keeps of that fails
    without."""

    hidden = False  # from Dynamo

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __enter__(self) -> Any:
        _hide_from_compiler(type(self))
        return super().__enter__()


def _hide_from_compiler(cls: Any) -> None:
    """Keeps Dynamo from compiling the mode itself, and what it calls, once anybody has brought
    Dynamo in. By a mark on its code: a wrapper, as of `torch.compiler.disable`, would take as long
    as the mode does, for each operator."""
    if "torch._dynamo" in sys.modules and not cls.hidden:
        from torch._C._dynamo.eval_frame import (
            _FrameAction,
            _FrameExecStrategy,
            set_code_exec_strategy,
        )

        cls.hidden = True
        skipped = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
        set_code_exec_strategy(cls.__torch_dispatch__.__code__, skipped)


def is_whole(func: Any) -> bool:
    """Whether an operator is one of higher order, as `torch.cond`: no mode sees what it runs."""
    return isinstance(func, HigherOrderOperator)
