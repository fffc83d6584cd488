"""A fault: a kind (a mechanism), one of its variants, where in a candidate, on which ranks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tpcheck.protocol.leftovers import INSIDE


class Place(StrEnum):
    """Where in a candidate a fault acts."""

    IMPORT = "import"
    BUILD = "build"
    LOAD = "load"
    FORWARD = "forward"  # before the all-reduce
    SUMMED = "summed"  # after it: the output
    MODULE_HOOK = "module hook"
    NODE = "autograd node"
    TENSOR_HOOK = "tensor hook"
    ACCUMULATED = "gradient accumulated"
    SCHEDULE = "schedule"
    FINALIZE = "finalize"
    HANDLER = "signal handler"
    THREAD = "thread"  # joined
    CHILD = "child process"  # waited for
    DESTRUCTOR = "destructor"
    ATEXIT = "atexit"
    LATER = "later thread"  # acts when the case may be over


class Effect(StrEnum):
    """What a fault does to the rank that has it."""

    ENDS = "ends the process that acts"
    KILLS = "ends or cuts off ranks, whoever acts"
    RAISES = "raises"
    HANGS = "does not go on"
    SPOILS = "wrong values, or none"
    LEAVES = "right values, changed state"
    MEDDLES = "undefined for itself, not for others"
    HARMLESS = "right"


PASS, FAIL, UNKNOWN = (frozenset({verdict}) for verdict in ("PASS", "FAIL", "UNKNOWN"))
#: What is undefined may be any verdict.
ANY = frozenset({"PASS", "FAIL", "UNKNOWN"})

#: Code that every case of a candidate runs through.
ON_THE_WAY = (
    Place.BUILD,
    Place.LOAD,
    Place.FORWARD,
    Place.SUMMED,
    Place.MODULE_HOOK,
    Place.NODE,
    Place.TENSOR_HOOK,
    Place.ACCUMULATED,
    Place.SCHEDULE,
    Place.FINALIZE,
    Place.HANDLER,
)
ASIDE = (Place.THREAD, Place.CHILD, Place.DESTRUCTOR, Place.ATEXIT, Place.IMPORT, Place.LATER)
#: Where the candidate's own numbers are done: what is changed there does not change them.
AT_THE_END = (Place.FINALIZE, Place.DESTRUCTOR)

#: Where each effect can be; a hang in `build` is waited for two minutes, by design.
PLACES: dict[Effect, tuple[Place, ...]] = {
    Effect.ENDS: (*ON_THE_WAY, *ASIDE),
    Effect.KILLS: (*ON_THE_WAY, *ASIDE),
    Effect.RAISES: (*ON_THE_WAY, *ASIDE),
    Effect.HANGS: (
        Place.LOAD,
        Place.FORWARD,
        Place.SUMMED,
        Place.NODE,
        Place.TENSOR_HOOK,
        Place.FINALIZE,
        Place.THREAD,
        Place.CHILD,
    ),
    Effect.SPOILS: (Place.SUMMED,),
    Effect.LEAVES: AT_THE_END,
    Effect.MEDDLES: (Place.BUILD, Place.FORWARD, Place.NODE, *AT_THE_END, Place.LATER),
    Effect.HARMLESS: (Place.BUILD, Place.FORWARD, Place.NODE, Place.FINALIZE),
}

_WRONG = {Effect.ENDS, Effect.KILLS, Effect.RAISES, Effect.HANGS, Effect.SPOILS}
#: What a place makes of an effect that is wrong elsewhere: Python ignores what a destructor or a
#: thread raises, a rank never gets to `atexit`, and a child's end is its own.
_ELSEWHERE: dict[tuple[Effect, Place], frozenset[str]] = {
    (Effect.ENDS, Place.CHILD): PASS,
    (Effect.RAISES, Place.CHILD): PASS,
    (Effect.RAISES, Place.THREAD): PASS,
    (Effect.RAISES, Place.DESTRUCTOR): PASS,
    (Effect.RAISES, Place.LATER): PASS,
    (Effect.ENDS, Place.DESTRUCTOR): ANY,
    (Effect.KILLS, Place.DESTRUCTOR): ANY,
    (Effect.ENDS, Place.LATER): ANY,
    (Effect.KILLS, Place.LATER): ANY,
    (Effect.ENDS, Place.ATEXIT): PASS,
    (Effect.KILLS, Place.ATEXIT): PASS,
    (Effect.RAISES, Place.ATEXIT): PASS,
    # the gradients are read after it, and there may be a step and one more forward
    (Effect.LEAVES, Place.FINALIZE): ANY,
}


def expectation(effect: Effect, place: Place) -> frozenset[str]:
    """The verdicts that the candidate itself may have."""
    if place is Place.IMPORT or effect is Effect.MEDDLES:
        return ANY
    if (effect, place) in _ELSEWHERE:
        return _ELSEWHERE[effect, place]
    return FAIL if effect in _WRONG else PASS


@dataclass(frozen=True)
class Replace:
    """What an act returns to have its place's value replaced."""

    value: Any


@dataclass
class Here:
    """What an act knows of where it is.

    Args:
        value: of the place: an output, a gradient; None where there is none.
        variant: of the kind.
    """

    module: Any
    value: Any
    variant: Any
    rank: int

    @property
    def group(self) -> Any:
        return self.module.group


Act = Callable[[Here], Any]


@dataclass(frozen=True)
class Kind:
    """A mechanism.

    Args:
        name: of the function that does it.
        family: the module that it is in.
        line: what it does.
        variants: parameters of the mechanism.
        everywhere: whether all ranks do it in every fault.
        expects: verdicts of the candidate itself, where the effect does not say it.
    """

    name: str
    family: str
    line: str
    act: Act
    effect: Effect
    variants: tuple[Any, ...]
    places: tuple[Place, ...]
    engines: tuple[str, ...]
    everywhere: bool = False
    expects: frozenset[str] | None = None

    def expected(self, place: Place) -> frozenset[str]:
        """The verdicts that the candidate itself may have."""
        return expectation(self.effect, place) if self.expects is None else self.expects


#: Every kind there is, by name; filled as the families are imported.
KINDS: dict[str, Kind] = {}
BOTH = ("gloo", "threads")
GLOO = ("gloo",)


def kind(
    effect: Effect,
    *variants: Any,
    at: tuple[Place, ...] | None = None,
    engines: tuple[str, ...] = BOTH,
    everywhere: bool = False,
    expects: frozenset[str] | None = None,
) -> Callable[[Act], Act]:
    """Registers a function as a kind; its name and docstring are the kind's."""

    def register(act: Act) -> Act:
        name = act.__name__.rstrip("_").replace("_", "-")
        assert name not in KINDS and act.__doc__, name
        KINDS[name] = Kind(
            name=name,
            family=act.__module__.rpartition(".")[2],
            line=act.__doc__,
            act=act,
            effect=effect,
            variants=variants or (None,),
            places=at or PLACES[effect],
            engines=engines,
            everywhere=everywhere,
            expects=expects,
        )
        return act

    return register


@dataclass(frozen=True)
class Trigger:
    """A fault in a candidate: travels to the ranks.

    Args:
        whole: whether every rank acts; else only the last.
    """

    act: Act
    variant: Any
    place: Place
    whole: bool

    def pull(self, module: Any, value: Any = None) -> Any:
        """Acts, where this rank is to; returns the place's value, or what it is replaced by."""
        if INSIDE not in os.environ:
            raise AssertionError("faults act on ranks only")
        rank = getattr(module, "rank", 0)
        last = getattr(module, "degree", 1) - 1
        if self.place is not Place.IMPORT and not self.whole and rank != last:
            return value
        done = self.act(Here(module, value, self.variant, rank))
        return done.value if isinstance(done, Replace) else value
