"""The candidate that a fault acts in."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fixtures.parallel.linear import RowLinear
from fixtures.parallel.sharding import load_full
from tests.candidates import linear, linear_dims
from tests.catalogue.torture.fault import KINDS, Place, Trigger
from tpcheck import Case, Check, specs


class _Node(torch.autograd.Function):
    """Hands on what it gets; its backward acts."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: Faulty) -> Tensor:
        ctx.module = module
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return ctx.module.trigger.pull(ctx.module, grads[0]), None


class _AtEnd:
    """Acts when it is destroyed, with the module that it is part of."""

    def __init__(self, module: Faulty) -> None:
        self.trigger, self.group = module.trigger, module.group
        self.rank, self.degree = module.rank, module.degree

    def __del__(self) -> None:
        self.trigger.pull(self)


class Faulty(RowLinear):
    """A correct row linear in which a fault acts at its place."""

    last_input: Tensor

    def __init__(self, *sizes: int, trigger: Trigger, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.trigger = trigger
        match trigger.place:
            case Place.MODULE_HOOK:
                self.register_forward_hook(lambda module, args, out: trigger.pull(module, out))
            case Place.ACCUMULATED:
                self.weight.register_post_accumulate_grad_hook(lambda _: trigger.pull(self))
            case Place.DESTRUCTOR:
                self.__dict__["at_end"] = _AtEnd(self)
            case Place.ATEXIT:
                atexit.register(trigger.pull, self)

    def at(self, place: Place, value: Any) -> Any:
        """The value of a place, or what the fault replaces it by."""
        return self.trigger.pull(self, value) if self.trigger.place is place else value

    def forward(self, x: Tensor) -> Any:
        self.last_input = x
        if self.trigger.place in _ASIDE:
            _ASIDE[self.trigger.place](self)
        self.at(Place.FORWARD, None)
        y = super().forward(x)
        if self.trigger.place is Place.NODE:
            y = _Node.apply(y, self)
        if self.trigger.place is Place.TENSOR_HOOK and y.requires_grad:
            y.register_hook(lambda grad: self.trigger.pull(self, grad))
        return self.at(Place.SUMMED, y)


def _in_handler(module: Faulty) -> None:
    number = signal.SIGUSR2
    before = signal.signal(number, lambda *_: module.trigger.pull(module))
    try:
        signal.raise_signal(number)
    finally:
        signal.signal(number, before)


def _in_thread(module: Faulty) -> None:
    thread = threading.Thread(target=module.trigger.pull, args=(module,))
    thread.start()
    thread.join()


def _later(module: Faulty) -> None:
    def run() -> None:
        time.sleep(0.15)
        module.trigger.pull(module)

    threading.Thread(target=run, daemon=True).start()


def _in_child(module: Faulty) -> None:
    child = os.fork()
    if child == 0:
        try:
            module.trigger.pull(module)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


_ASIDE: dict[Place, Callable[[Faulty], None]] = {
    Place.HANDLER: _in_handler,
    Place.THREAD: _in_thread,
    Place.LATER: _later,
    Place.CHILD: _in_child,
}


def _built(trigger: Trigger, case: Case, mesh: Any) -> Any:
    """The faulty module, or what the fault makes of it."""
    module = linear(Faulty, trigger=trigger)(case, mesh)
    return trigger.pull(module, module) if trigger.place is Place.BUILD else module


def _load(module: Any, full: Mapping[str, Tensor]) -> None:
    load_full(module, full)
    module.trigger.pull(module)


def _finalize(module: Any, mesh: Any) -> None:
    if isinstance(module, Faulty):  # not the other class of a check of two
        module.trigger.pull(module)


Passes = Sequence[Mapping[str, Tensor]]


def _schedule(module: Any, inputs: Passes, cotangents: Passes) -> Any:
    outputs = [module(*given.values()) for given in inputs]
    for output, seeds in zip(outputs, cotangents, strict=True):
        for seed in seeds.values():
            output.backward(seed)
    return module.trigger.pull(module, outputs)


def faulty(trigger: Trigger, name: str) -> Check:
    """The check of a candidate with a fault."""

    def build(case: Case, mesh: Any) -> Any:
        return _built(trigger, case, mesh)

    return _check(trigger, build, name)


def _check(trigger: Trigger, build: Any, name: str) -> Check:
    place = trigger.place
    return Check(
        specs.row_linear(),
        build,
        name=name,
        load=_load if place is Place.LOAD else None,
        schedule=_schedule if place is Place.SCHEDULE else None,
        overrides={"finalize": _finalize} if place is Place.FINALIZE else {},
    )


_FIRST = Case(dims=linear_dims(), mesh={"tp": 2})
_SECOND = Case(dims=linear_dims(6, 5, batch=2, bias=True), mesh={"tp": 2})


def within(trigger: Trigger, second: type[RowLinear], name: str) -> Check:
    """A check of two cases: the first has the fault, the second is of the class `second`."""

    def build(case: Case, mesh: Any) -> Any:
        if case["in_features"] == _FIRST["in_features"]:
            return _built(trigger, case, mesh)
        return linear(second)(case, mesh)

    check = _check(trigger, build, name)
    return replace(check, spec=replace(check.spec, cases=[_FIRST, _SECOND]), overrides={})


# ---- a fault at import

_MODULE = '''"""A candidate whose import has a fault, on ranks only."""
import os
import {module}
from tests.candidates import linear
from fixtures.parallel.linear import RowLinear
from tpcheck.protocol.leftovers import INSIDE
from tests.catalogue.torture.fault import KINDS, Here
if INSIDE in os.environ:
    fault = KINDS[{kind!r}]
    fault.act(Here(None, None, fault.variants[{variant}], 0))
build = linear(RowLinear)
def built(case, mesh):
    return build(case, mesh)
'''


@contextlib.contextmanager
def imported(trigger: Trigger, name: str) -> Any:
    """The check of a candidate in a module of its own; the module is forgotten afterwards."""
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        module = f"torture_{abs(hash(name))}"
        file = Path(folder) / f"{module}.py"
        kind = next(kind for kind in KINDS.values() if kind.act is trigger.act)
        variant = next(i for i, one in enumerate(kind.variants) if one is trigger.variant)
        module_of = trigger.act.__module__
        file.write_text(_MODULE.format(module=module_of, kind=kind.name, variant=variant))
        made = ModuleType(module)
        made.__file__ = str(file)
        sys.modules[module] = made
        try:
            exec(compile(file.read_text(), str(file), "exec"), vars(made))
            yield Check(specs.row_linear(), made.built, name=name)
        finally:
            del sys.modules[module]
