"""What a first check is of: `MODULE:FACTORY`, and how it is called."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from tpcheck.comms import frames
from tpcheck.errors import InvalidArgument, let_through, listed
from tpcheck.first.room import within_reason

#: What the written file calls things of its own, and of tpcheck's.
OURS = frozenset(
    """
    tpcheck dtensor transformers strategies AutoModelForCausalLM Spec Check Relation Plan Layout
    Shard Replicate Partial Blocks Heads Only WHOLE SMALL cases layout inputs candidate build spec
    case mesh draw space dims dict
    """.split()  # noqa: SIM905
)

#: What the one argument of a factory may be: a mesh, a process group, either of them, which only
#: what it does with it can tell, or the configuration of a class of transformers' models.
MESH, GROUP, UNTOLD, CONFIG = "mesh", "group", "mesh or group", "config"
#: What an argument is called that is a process group, or a mesh: `group`, `tp_pg`, `device_mesh`.
_GROUP = re.compile(r"(^|_)(group|pg|pgroup)$")
_MESH = re.compile(r"(^|_)mesh(_\d?d)?$")


@dataclass(frozen=True)
class Imported:
    """Something in a module that the written file imports.

    Args:
        module: by which it does.
        name: in there; with dots where it is inside of a class.
        alias: what it is called there, where something else has the name that it would have.
    """

    module: str
    name: str
    alias: str = field(default="", kw_only=True)

    @property
    def top(self) -> str:
        """What is imported."""
        return self.name.partition(".")[0]

    @property
    def top_as(self) -> str:
        """As the file calls that."""
        return self.alias or (f"own_{self.top}" if self.top in OURS else self.top)

    @property
    def called(self) -> str:
        """As the file calls it."""
        return self.top_as + self.name.removeprefix(self.top)

    def beside(self, other: Imported | None) -> Self:
        """In a file that imports another, too."""
        if other is None or other.top_as != self.top_as:
            return self
        if (other.module, other.top) == (self.module, self.top):
            return self
        free = (f"{prefix}_{self.top}" for prefix in ("own", "other"))
        return replace(self, alias=next(name for name in free if name != other.top_as))


@dataclass(frozen=True, kw_only=True)
class Factory(Imported):
    """Something that makes an `nn.Module`, or a configuration of transformers.

    Args:
        target: as it was named, for messages.
        value: itself.
        takes: what its one argument is, or "" where it takes none.
        argument: what that is called.
        named: whether it is given by its name.
        optional: whether it can be left out, and the module is then whole.
    """

    target: str
    value: Any
    takes: str
    argument: str = ""
    named: bool = False
    optional: bool = False

    def text(self, mesh: str = 'mesh["tp"]') -> str:
        """A call of it, on a rank."""
        given = {"": "", MESH: mesh, GROUP: f"{mesh}.get_group()"}[self.takes]
        return (
            f"{self.called}({self.argument}={given})" if self.named else f"{self.called}({given})"
        )

    def __call__(self, mesh: DeviceMesh | None = None) -> Any:
        """What it makes.

        Raises:
            InvalidArgument: it raises, or makes more than a check can hold.
        """
        make = self.value
        if self.takes:
            assert mesh is not None, "asked for on ranks"
            given = mesh if self.takes == MESH else mesh.get_group()
            make = partial(make, **{self.argument: given}) if self.named else partial(make, given)
        where = "" if mesh is None else f" at tp={mesh.size()}"
        with within_reason(self.target):
            return called(f"{self.target}{where}", make)

    def alone(self) -> Factory:
        """The same without an argument that can be left out."""
        return replace(self, takes="", named=False) if self.optional else self


def bound(function: Callable[..., Any], argument: inspect.Parameter, value: Any) -> Any:
    """The function with its one argument."""
    if argument.kind is argument.POSITIONAL_ONLY:
        return partial(function, value)
    return partial(function, **{argument.name: value})


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
    if not all(map(_is_name, module.split("."))) or module.startswith("tpcheck_checks_"):
        stem = Path(target.rpartition(":")[0]).stem
        how = "run this in its folder" if _is_name(stem) else f"call the file other than {stem}.py"
        raise InvalidArgument(f"{target} can't be imported by a name: {how}")
    needed = required(value)
    if len(needed) > 1:
        raise InvalidArgument(
            f"{target} needs {listed(p.name for p in needed)}: name a function without arguments "
            "that makes the module, or one whose only argument is a mesh or a process group"
        )
    about: dict[str, Any] = {"target": target, "module": module, "name": name, "value": value}
    if (argument := the_argument(value)) is None:
        return Factory(**about, takes="")
    if takes_config(value):
        return Factory(**about, takes=CONFIG, argument=argument.name)
    optional = argument.default is not argument.empty
    named = optional or argument.kind is argument.KEYWORD_ONLY
    takes = taken(target, argument)
    return Factory(**about, takes=takes, argument=argument.name, named=named, optional=optional)


def _is_name(text: str) -> bool:
    """Whether an import can have it."""
    return text.isidentifier() and not keyword.iskeyword(text)


def the_argument(function: Any) -> inspect.Parameter | None:
    """The one that is a mesh, a process group, or what else it needs: the one that a call must
    give, or one that is None by default and is said to be one of the two."""
    if needed := required(function):
        return needed[0] if len(needed) == 1 else None
    free = [p for p in _parameters(function) if p.default is None and _told(p)]
    return free[0] if len(free) == 1 else None


def taken(target: str, argument: inspect.Parameter) -> str:
    """What an argument is: by its annotation, then by its name.

    Raises:
        InvalidArgument: neither a mesh nor a process group, by its annotation.
    """
    if told := _told(argument):
        return told
    said = _annotation(argument)
    if not said:
        return UNTOLD
    raise InvalidArgument(
        f"{target} needs {argument.name}, which is annotated as {said}, neither a mesh nor a "
        "process group: name a function without arguments that makes the module"
    )


def _told(argument: inspect.Parameter) -> str:
    """What its annotation says that it is, or its name where that is not of another kind."""
    said = _annotation(argument)
    for kind, cls in ((MESH, "DeviceMesh"), (GROUP, "ProcessGroup")):
        if re.search(rf"\b{cls}\b", said):
            return kind
    if not hasattr(builtins, said):
        for kind, named in ((GROUP, _GROUP), (MESH, _MESH)):
            if named.search(argument.name):
                return kind
    return ""


def _annotation(argument: inspect.Parameter) -> str:
    """As it is written; "" where it says nothing."""
    annotation = argument.annotation
    if annotation in (argument.empty, Any, object):
        return ""
    said = annotation.__name__ if isinstance(annotation, type) else f"{annotation}"
    return "" if said in ("Any", "object") else said


def required(function: Any) -> list[inspect.Parameter]:
    """The arguments that a call must give, annotations that are text read where they can be."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = _parameters(function)
    return [p for p in parameters if p.default is p.empty and p.kind not in variable]


def _parameters(function: Any) -> list[inspect.Parameter]:
    with contextlib.suppress(Exception):  # a name, say, that only a type checker imports
        return list(inspect.signature(function, eval_str=True).parameters.values())
    with contextlib.suppress(TypeError, ValueError):
        return list(inspect.signature(function).parameters.values())
    return []


def takes_config(value: Any) -> bool:
    """Whether it is a class of transformers' models, which is made of a configuration."""
    own = getattr(value, "config_class", None)
    return isinstance(value, type) and issubclass(value, nn.Module) and isinstance(own, type)
