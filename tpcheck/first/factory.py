"""What a first check is of: `MODULE:FACTORY`, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from tpcheck.comms import frames
from tpcheck.errors import InvalidArgument, let_through, listed

#: What the one argument of a factory is called that is given a process group.
GROUPS = ("group", "process_group", "pg", "tp_group", "tp_pg")


@dataclass(frozen=True)
class Factory:
    """Something in a module that makes an `nn.Module`, or a configuration of transformers.

    Args:
        target: as it was named, for messages.
        module: by which the written file imports it.
        name: in there; with dots where it is inside of a class.
        value: itself.
        takes: what its one argument is: a "mesh", a "group", or "" where it takes none.
    """

    target: str
    module: str
    name: str
    value: Any
    takes: str

    @property
    def top(self) -> str:
        """What is imported."""
        return self.name.partition(".")[0]

    def text(self, mesh: str = 'mesh["tp"]') -> str:
        """A call of it, on a rank."""
        given = {"": "", "mesh": mesh, "group": f"{mesh}.get_group()"}
        return f"{self.name}({given[self.takes]})"

    def __call__(self, mesh: DeviceMesh | None = None) -> Any:
        """What it makes.

        Raises:
            InvalidArgument: it raises.
        """
        given: list[Any] = []
        if self.takes:
            assert mesh is not None, "asked for on ranks"
            given = [mesh if self.takes == "mesh" else mesh.get_group()]
        where = "" if mesh is None else f" at tp={mesh.size()}"
        return called(f"{self.target}{where}", self.value, *given)


def called(what: str, function: Callable[..., Any], *given: Any) -> Any:
    """What a user's function returns; what it raises is theirs to fix: one line."""
    try:
        return function(*given)
    except InvalidArgument:
        raise
    except BaseException as error:
        let_through(error)
        raise InvalidArgument(f"{what} {frames.in_a_line(error)}") from error


def factory(target: str, module: str, value: Any) -> Factory:
    """Of what is named.

    Raises:
        InvalidArgument: it is no factory, or needs arguments that nobody knows.
    """
    name = target.rpartition(":")[2]
    if isinstance(value, nn.Module) or not callable(value):
        raise InvalidArgument(
            f"{target} is a {type(value).__name__}: name a function or class that makes the module"
        )
    if not module.replace(".", "_").isidentifier() or module.startswith("tpcheck_checks_"):
        raise InvalidArgument(f"{target} can't be imported by a name: run this in its folder")
    needed = required(value)
    if len(needed) > 1:
        raise InvalidArgument(
            f"{target} needs {listed(p.name for p in needed)}: name a function without arguments "
            "that makes the module, or one whose only argument is a mesh or a process group"
        )
    takes = ""
    if needed:
        said = f"{needed[0].annotation}"
        group = needed[0].name in GROUPS or "ProcessGroup" in said
        takes = "group" if group else "mesh"
    return Factory(target, module, name, value, takes)


def required(function: Any) -> list[inspect.Parameter]:
    """The arguments that a call must give."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in parameters if p.default is p.empty and p.kind not in variable]
