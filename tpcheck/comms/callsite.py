"""Where in the candidate the operation of this moment belongs: the line, and the module.

In forward the stack says both. In backward autograd calls from outside the candidate's code: there
the node that runs was made while some module's forward ran, and nodes are numbered as they are
made. Following those numbers takes hooks on the candidate's modules, which is for the runs that
examine a failure.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from tpcheck.comms import frames
from tpcheck.tensors.names import unwrapped


def line() -> str:
    """`file.py:line` of the innermost frame that is neither torch's nor tpcheck's."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if frames.is_users(path):
            return f"{path.rsplit('/', 1)[-1]}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def written(module: nn.Module) -> dict[str, str]:
    """Each of `module`'s modules by its qualified name: its class, and where the code of that is,
    as far as it is the user's: `RowLinear of my.layers, forward at linear.py:118`; of a class that
    takes its forward from another one its own first method, too."""
    return {unwrapped(name, module): _code(type(m)) for name, m in module.named_modules()}


def _code(kind: type) -> str:
    said = [f"{kind.__name__} of {kind.__module__}"]
    forward = getattr(getattr(kind, "forward", None), "__code__", None)
    place = "" if forward is None else _place(forward)
    if own := _first_method(kind, forward):
        said.append(f"methods from {own}")
    return ", ".join([*said, f"forward at {place}"] if place else said)


def _first_method(kind: type, forward: Any) -> str:
    """Where the methods begin that a class, or a class of its bases before the one that has its
    forward, puts over that one's."""
    for own in kind.__mro__:
        found = [getattr(method, "__code__", None) for method in vars(own).values()]
        codes = [code for code in found if code is not None]
        if forward in codes:
            return ""
        if places := [place for code in codes if (place := _place(code))]:
            return places[0]
    return ""


def place_of(function: object) -> str:
    """Where a callable of the user's is written, and the functions that it closes over: it may be
    a decorator's; nothing of what is not a function."""
    function = getattr(function, "func", function)  # of a partial
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    cells = getattr(function, "__closure__", None) or ()
    inner = [getattr(_content(cell), "__code__", None) for cell in cells]
    places = [_place(one) for one in (code, *inner) if one is not None]
    return " over ".join(place for place in places if place)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _place(code: Any) -> str:
    """`file.py:line` of a user's function; else nothing."""
    path = str(code.co_filename)
    return f"{path.rsplit('/', 1)[-1]}:{code.co_firstlineno}" if frames.is_users(path) else ""


class Origin:
    """The modules of one candidate on one rank."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}  # id of a module → its qualified name
        self._owners: dict[int, str] = {}  # id of a parameter → its module's name
        self._open: list[int] = []
        self._spans: list[tuple[int, int, str]] = []  # numbers of nodes, from and to; inner first

    def know(self, module: nn.Module) -> None:
        """Notes the names of `module`'s modules."""
        for name, inner in module.named_modules():
            self._names[id(inner)] = unwrapped(name, module)
            for parameter in inner.parameters(recurse=False):
                self._owners[id(parameter)] = unwrapped(name, module)

    def follow(self, module: nn.Module) -> None:
        """Notes from now on which autograd nodes each of `module`'s modules makes."""
        for inner in module.modules():
            inner.register_forward_pre_hook(self._enter)
            inner.register_forward_hook(self._leave)

    def _enter(self, module: nn.Module, args: Any) -> None:
        self._open.append(_next_node())

    def _leave(self, module: nn.Module, args: Any, result: Any) -> None:
        if self._open:
            self._spans.append((self._open.pop(), _next_node(), self._names.get(id(module), "")))

    def module(self) -> str:
        """The qualified name of the innermost module that this moment belongs to; empty where
        that is the outermost one, or not known."""
        node = torch._C._current_autograd_node()
        return self._on_the_stack() or ("" if node is None else self._made_in(node))

    def _on_the_stack(self) -> str:
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_varnames[:1] == ("self",):
                name = self._names.get(id(frame.f_locals.get("self")))
                if name is not None:
                    return name
            frame = frame.f_back
        return ""

    def _made_in(self, node: Any) -> str:
        variable = getattr(node, "variable", None)  # where a gradient is accumulated
        if variable is not None:
            return self._owners.get(id(variable), "")
        number = node._sequence_nr()
        return next((name for start, end, name in self._spans if start <= number < end), "")


def _next_node() -> int:
    return int(torch._C._autograd._get_sequence_nr())
