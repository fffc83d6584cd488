"""What modes of ours have in common that see each operator."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode


class Dispatch(TorchDispatchMode):
    """Sees the operators that run while it is entered; those of higher order too (`whole`).
    What would be compiled under it runs eagerly."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler, a second per process, to wrap a class of it

    def __enter__(self) -> Any:
        _hide_from_compiler(type(self))
        return super().__enter__()

    def whole(self, func: Any, args: Sequence[Any], kwargs: Any) -> Any:
        """An operator of higher order, so that what it runs is seen, where its parts are known."""
        if (parts := parts_of_whole(func)) is None:
            return func(*args, **(kwargs or {}))
        TorchDispatchMode.__enter__(self)  # once more, whatever else entering it does
        try:
            with _Composed():
                return parts(*args, **(kwargs or {}))
        finally:
            TorchDispatchMode.__exit__(self, None, None, None)


class _Composed(Dispatch):
    """Takes apart what other modes would not see whole: functions inside of an operator of higher
    order are traced before operators that are made of others are."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not is_whole(func):
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        return func(*args, **kwargs)


class OverCompiled(Dispatch):
    """One that leaves the compiler alone: it is off while something compiles, and on when that
    runs. Under another one torch compiles with the mode in it, and what it keeps of that fails
    without."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


def _hide_from_compiler(cls: Any) -> None:
    """Keeps Dynamo from compiling the mode itself, and what it calls, once anybody has brought
    Dynamo in. By a mark on its code: a wrapper, as of `torch.compiler.disable`, would take as long
    as the mode does, for each operator."""
    if "torch._dynamo" in sys.modules and not vars(cls).get("hidden"):
        from torch._C._dynamo.eval_frame import (
            _FrameAction,
            _FrameExecStrategy,
            set_code_exec_strategy,
        )

        cls.hidden = True  # a class that takes its method from it is asked about again
        skipped = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
        set_code_exec_strategy(cls.__torch_dispatch__.__code__, skipped)


def is_whole(func: Any) -> bool:
    """Whether an operator is one of higher order, as `torch.cond`: it runs functions."""
    return isinstance(func, HigherOrderOperator)


def parts_of_whole(func: Any) -> Callable[..., Any] | None:
    """What an operator of higher order does, by its parts alone: no mode sees them otherwise. None
    where that is not known."""
    return _WHOLE.get(func.name())


def _cond(chosen: Any, first: Any, second: Any, operands: Sequence[Any]) -> Any:
    return (first if chosen else second)(*operands)


def _while_loop(goes_on: Any, body: Any, carried: Any, more: Sequence[Any]) -> Any:
    while goes_on(*carried, *more):
        carried = body(*carried, *more)
    return carried


_WHOLE = {"cond": _cond, "while_loop": _while_loop}


#: Where torch compiles what an operator of higher order is made of, before it runs, and the context
#: that it does so in, under the names that its releases have for it.
_OF_HIGHER_ORDER = ("torch._higher_order_ops", "torch.nn.attention.flex_attention")
_COMPILES_IN = ("setup_compilation_env", "_set_compilation_env")


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """`torch.compile` does nothing in this process meanwhile, but for operators of higher order,
    which torch can't run otherwise."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"), contextlib.ExitStack() as left:
        for module, name in _contexts(len(sys.modules)):
            left.callback(setattr, module, name, vars(module)[name])
            setattr(module, name, _as_ever(vars(module)[name]))
        yield


@functools.lru_cache(1)
def _contexts(count: int) -> list[tuple[ModuleType, str]]:
    """Those of a process with so many modules: to look through all takes as long as a small run."""
    modules = [m for name, m in list(sys.modules.items()) if name.startswith(_OF_HIGHER_ORDER)]
    return [(module, own) for module in modules for own in _COMPILES_IN if own in vars(module)]


def _as_ever(context: Callable[..., Any]) -> Callable[..., Any]:
    """The context, in which what is asked to be compiled is."""

    @contextlib.contextmanager
    def within(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with torch.compiler.set_stance("default"), context(*args, **kwargs) as found:
            yield found

    return within
