"""Parameters, inputs, and what tpcheck itself is made of, changed under its hands.

What a candidate does to the code that judges it is its own affair; it must not reach another's.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

import torch
from torch import nn

from tests.catalogue.torture.fault import ANY, PASS, Effect, Here, Place, kind

_HERE = (Place.BUILD, Place.FORWARD, Place.NODE, Place.FINALIZE)


def _all(kind_: type) -> list[Any]:
    return [one for one in gc.get_objects() if issubclass(type(one), kind_)]


@kind(Effect.SPOILS, 1.5, 0.0, at=(Place.LOAD,))
def parameters_after_loading(here: Here) -> None:
    """Scales its weight when it has been loaded."""
    here.module.weight.data.mul_(here.variant)


@kind(Effect.HARMLESS, at=(Place.BUILD,), expects=PASS)
def parameters_before_loading(here: Here) -> None:
    """Fills its weight with NaN before it is loaded."""
    here.module.weight.data.fill_(float("nan"))


@kind(Effect.SPOILS, 0.0, 2.0, float("nan"), at=(Place.FINALIZE,))
def gradients(here: Here) -> None:
    """Scales the gradient of its weight."""
    here.module.weight.grad.mul_(here.variant)


@kind(Effect.SPOILS, at=(Place.FINALIZE,))
def gradients_removed(here: Here) -> None:
    """Takes the gradient of its weight away."""
    here.module.weight.grad = None


@kind(Effect.SPOILS, at=(Place.BUILD,))
def parameters_removed(here: Here) -> None:
    """Has no weight any more."""
    del here.module.weight


@kind(Effect.SPOILS, at=(Place.BUILD,))
def parameters_whole(here: Here) -> None:
    """Has the whole weight where a part belongs."""
    weight = here.module.weight
    whole = torch.empty(weight.shape[0], weight.shape[1] * 2 + 1)
    here.module.weight = nn.Parameter(whole)


@kind(Effect.MEDDLES, at=(Place.SUMMED, Place.NODE))
def inputs(here: Here) -> None:
    """Overwrites its input when it has used it."""
    with torch.no_grad():
        here.module.last_input.data.zero_()


@kind(Effect.MEDDLES, "events", "phase", at=_HERE)
def the_recorder(here: Here) -> None:
    """Empties the trace of its collectives."""
    from tpcheck.comms.trace import Recorder

    for recorder in _all(Recorder):
        if here.variant == "events":
            recorder.events.clear()
        else:
            recorder.phase = None


@kind(Effect.MEDDLES, 0x00, 0xFF, at=_HERE)
def the_board(here: Here) -> None:
    """Overwrites the memory that driver and ranks share."""
    import mmap

    for memory in _all(mmap.mmap):
        try:
            memory[:] = bytes([here.variant]) * len(memory)
        except (TypeError, ValueError, OSError):
            continue


_JUDGES = {
    "tpcheck.ranks.judging": "Judging",
    "tpcheck.bounds.compare": "compare",
    "tpcheck.process.guard": "Guard",
    "tpcheck.ranks.loading": "Loader",
}


@kind(Effect.MEDDLES, *_JUDGES, at=_HERE)
def what_judges_it(here: Here) -> None:
    """Replaces the code of tpcheck that compares, loads or restores."""

    def nothing(*args: Any, **kwargs: Any) -> Any:
        return []

    module = importlib.import_module(here.variant)
    for owner in [value for value in vars(module).values() if isinstance(value, type)]:
        if owner.__module__ == here.variant:
            for name in [n for n in vars(owner) if not n.startswith("__")]:
                setattr(owner, name, nothing)


@kind(Effect.MEDDLES, at=_HERE)
def the_report(here: Here) -> None:
    """Finds its own report, and takes out what speaks against it."""
    from tpcheck.protocol.messages import RankReport

    for report in _all(RankReport):
        report.mismatches = type("None_", (list,), {"append": len, "__iadd__": lambda a, b: a})()


@kind(Effect.MEDDLES, at=_HERE)
def the_modules_of_tpcheck(here: Here) -> None:
    """Forgets every module of tpcheck."""
    for name in [name for name in sys.modules if name.startswith("tpcheck")]:
        del sys.modules[name]


@kind(Effect.MEDDLES, at=_HERE)
def frames_above(here: Here) -> None:
    """Changes the variables of whoever called it."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        for name, value in list(frame.f_locals.items()):
            if name in ("work", "problem", "kept") and isinstance(value, dict):
                value.clear()


@kind(Effect.MEDDLES, at=_HERE, expects=ANY)
def every_tensor(here: Here) -> None:
    """Overwrites every tensor that there is."""
    with torch.no_grad():
        for tensor in _all(torch.Tensor):
            try:
                tensor.data.fill_(1)
            except (RuntimeError, TypeError):
                continue


@kind(Effect.MEDDLES, at=_HERE, expects=ANY)
def what_it_has_been_taught(here: Here) -> None:
    """Replaces the candidates that the rank knows."""
    from tpcheck.ranks.host import Host

    for host in _all(Host):
        for key in host.candidates.parts:
            host.candidates.parts[key] = {"candidate": lambda case, mesh: None}
