"""How what a user hands over is sent to the ranks: by value or by name, as cloudpickle does, and by
name alone what has no value to send: ops of `torch.library`, what `torch.compile` made, and
kernels of Triton's.
"""

from __future__ import annotations

import functools
import importlib
import io
import pickletools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle
import torch
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket
from torch.library import Library

from tpcheck.check import Check
from tpcheck.errors import let_through
from tpcheck.tensors.ops import is_compiled, name_of

Place = tuple[str, str]  # a module's name, and a variable in it

#: Packages that a rank has anyway, or loads in no time; of tpcheck's, all but those.
_THERE = sys.stdlib_module_names | {"torch", "tpcheck", "cloudpickle", "numpy"}
_LOADED_LATE = ("tpcheck.adapters.", "tpcheck.bench.")
#: Functions of a pickle whose first argument is the name of a module that they import.
_IMPORTING = {
    ("cloudpickle.cloudpickle", "subimport"),
    *((__name__, name) for name in ("_op", "_namespace", "_of_module", "_of_check", "_imported")),
}


def sent(parts: Any, check: Check) -> bytes:
    """What `cloudpickle.loads` makes again on a rank.

    Args:
        check: to which the parts belong.

    Raises:
        Exception: some of it can't be pickled.
    """
    file = io.BytesIO()
    _Pickler(file, check).dump(parts)
    return file.getvalue()


def modules_of(blob: bytes) -> tuple[str, ...]:
    """The modules that are imported where it is unpickled, sorted, but for those that every rank
    has. Read off the pickle, of which nothing is run."""
    found: set[str] = set()
    memo: list[str | _Named | None] = []
    before: str | _Named | None = None  # what was pushed last but one, and last; None: another
    last: str | _Named | None = None
    for opcode, given, _ in pickletools.genops(blob):
        if opcode.name == "MEMOIZE":
            memo.append(last)
            continue
        pushed: str | _Named | None = None
        if opcode.name == "STACK_GLOBAL":
            found.add(str(before))
            pushed = _Named(str(before), str(last))
        elif "UNICODE" in opcode.name:
            pushed = str(given)
        elif "BINGET" in opcode.name and isinstance(given, int):
            pushed = memo[given]
        if isinstance(last, _Named) and isinstance(pushed, str) and last.imports:
            found.add(pushed)
        before, last = last, pushed
    return tuple(sorted(filter(_takes_time, found)))


def _takes_time(module: str) -> bool:
    return module.partition(".")[0] not in _THERE or module.startswith(_LOADED_LATE)


@dataclass(frozen=True)
class _Named:
    """What is found by a name, in a module."""

    module: str
    name: str

    @property
    def imports(self) -> bool:
        return (self.module, self.name) in _IMPORTING


@dataclass(frozen=True)
class _Home:
    """A module that is to run wherever this is unpickled, since what is sent may rely on what its
    imports do; the name of one of its own would have it run anyway."""

    module: str

    def __reduce__(self) -> Any:
        return _imported, (self.module,)


def homes(functions: Iterable[Any]) -> list[Any]:
    """What is to be unpickled before these callables: it imports the modules of those that are sent
    by value, as closures are."""
    found: dict[str, None] = {}
    for function in functions:
        while isinstance(function, functools.partial):
            function = function.func
        module = getattr(function, "__module__", None)
        if isinstance(function, FunctionType) and module in sys.modules and module != "__main__":
            found |= {} if _is_named(function) else {module: None}
    return [*map(_Home, found)]


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, check: Check) -> None:
        super().__init__(file)
        self._check = check

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            return _with_its_file(obj)
        if isinstance(obj, (CustomOpDef, OpOverload, OpOverloadPacket)):
            return _op, (self._home_of(obj), *_path_of(obj))
        if isinstance(obj, (type(torch.ops), type(torch.ops.aten))):
            return _namespace, (self._home_of_the_check(), *_library_of(obj))
        if isinstance(obj, ModuleType) and _is_part_of_torch(obj):
            return _part_of_torch, (obj.__name__,)
        if is_compiled(obj) and not isinstance(obj, torch.nn.Module) and not _is_named(obj):
            if (place := _variable(obj)) is not None:
                return _of_module, place
            return _of_check, self._inside_of_the_check(obj)
        if _is_of_triton(obj):
            if (place := _variable(obj)) is not None:
                return _of_module, place
            kernel = obj
            while not hasattr(kernel, "__name__") and hasattr(kernel, "fn"):
                kernel = kernel.fn  # of what autotunes it
            raise TypeError(
                f"the Triton kernel {getattr(kernel, '__name__', '')!r} is found by its name on "
                "the ranks: define it at the top of a module"
            )
        return super().reducer_override(obj)

    def _home_of(self, op: Any) -> str:
        """The module that registers an op; where that is not known, the one with the check."""
        known = OPDEFS.get(name_of(op))
        home = _registering(name_of(op)) if known is None else known._init_fn.__module__
        if home is not None and home.partition(".")[0] == "torch":
            home = None  # a wrapper of torch's, as `triton_op` puts around what it is given
        if home is None and (place := _variable(op) or _place_of(self._check)) is not None:
            home = place[0]
        if home == "__main__":
            raise TypeError(f"{name_of(op)} is registered in __main__, which ranks don't run")
        return home or "torch"

    def _home_of_the_check(self) -> str:
        """The module that must have run before an op is looked for by its name."""
        place = _place_of(self._check)
        return place[0] if place else "torch"

    def _inside_of_the_check(self, function: Any) -> Place:
        place = _place_of(self._check)
        if place is None or getattr(self._check.candidate, "fn", None) is not function:
            raise TypeError(
                "a compiled function is found by its name on the ranks: assign it in a module, as "
                "in `fast = torch.compile(f)`"
            )
        return place


def _with_its_file(code: CodeType) -> Any:
    """As cloudpickle sends it, but for the file's name, which it leaves out: by that a traceback
    shows whose line it is."""
    make, given = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return make, tuple(code.co_filename if part == "<dynamic-code>" else part for part in given)


def _is_part_of_torch(module: ModuleType) -> bool:
    """Whether it is one that torch has and Python does not import, as `torch._C._functions`, of
    which what `once_differentiable` makes knows."""
    name = module.__name__
    if name in sys.modules or name.partition(".")[0] != "torch":
        return False
    try:
        return _part_of_torch(name) is module
    except AttributeError:
        return False


def _is_of_triton(thing: Any) -> bool:
    """Whether it is a kernel of Triton's, interpreted, autotuned or neither: it holds locks."""
    return type(thing).__module__.startswith("triton.runtime.") and hasattr(thing, "run")


def _path_of(op: Any) -> tuple[str, str | None]:
    """(library::op, overload); None for the op that has them all, "def" for what defined it."""
    if isinstance(op, CustomOpDef):
        return name_of(op), "def"
    return name_of(op), None if isinstance(op, OpOverloadPacket) else str(op._overloadname)


def _library_of(namespace: Any) -> tuple[str, ...]:
    """Of `torch.ops.aten`: ("aten",); of `torch.ops` none."""
    return () if isinstance(namespace, type(torch.ops)) else (namespace.name,)


def _modules() -> Iterator[ModuleType]:
    """Those with a file of their own that ranks can find."""
    for name, module in list(sys.modules.items()):
        file = str(getattr(module, "__file__", None))
        if file.endswith(".py") and name != "__main__" and name.partition(".")[0] != "torch":
            yield module


def _variable(thing: Any) -> Place | None:
    for module in _modules():
        for name, held in list(vars(module).items()):
            if held is thing:
                return module.__name__, name
    return None


def _registering(op: str) -> str | None:
    """The module that holds the library in which an op is defined."""
    for module in _modules():
        for held in list(vars(module).values()):
            if type(held) is Library and op in held._op_defs:
                return module.__name__
    return None


def _place_of(check: Check) -> Place | None:
    address = check.address()
    if address is None:
        return None
    named = [m.__name__ for m in _modules() if str(m.__file__) == address[0]]
    return (named[0], address[1]) if named else None


def _is_named(function: Any) -> bool:
    """Whether its own name leads to it, so that cloudpickle sends that."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    return getattr(module, getattr(function, "__qualname__", ""), None) is function


# ---- on a rank


def _imported(module: str) -> str:
    try:
        importlib.import_module(module)
    except BaseException as error:  # as of a test that only its runner can import, or skips itself
        let_through(error)
    return module


def _op(home: str, name: str, overload: str | None) -> Any:
    importlib.import_module(home)
    if overload == "def":
        return OPDEFS[name]
    library, _, op = name.partition("::")
    packet = getattr(getattr(torch.ops, library), op)
    return packet if overload is None else getattr(packet, overload)


def _namespace(home: str, *library: str) -> Any:
    importlib.import_module(home)
    return getattr(torch.ops, library[0]) if library else torch.ops


def _part_of_torch(name: str) -> Any:
    return functools.reduce(getattr, name.split(".")[1:], torch)


def _of_module(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _of_check(module: str, name: str) -> Any:
    return _of_module(module, name).candidate.fn
