"""Limits that a rank meets: memory, recursion, sizes of files, descriptors."""

from __future__ import annotations

import os
import resource
import sys
import tempfile

import torch

from tests.catalogue.torture.fault import ANY, ON_THE_WAY, Effect, Here, Place, kind


def _used() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


@kind(Effect.RAISES, "tensor", "bytes")
def runs_out_of_memory(here: Here) -> None:
    """Limits its memory, and takes more."""
    resource.setrlimit(resource.RLIMIT_AS, (_used() + 2**26, resource.RLIM_INFINITY))
    try:
        if here.variant == "tensor":
            torch.ones(2**28)
        else:
            bytearray(2**28)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)


@kind(Effect.MEDDLES, at=(Place.FORWARD, Place.NODE, Place.FINALIZE))
def leaves_no_memory(here: Here) -> None:
    """Limits its memory to what it has, for the rest of the case too."""
    resource.setrlimit(resource.RLIMIT_AS, (_used() + 2**16,) * 2)


@kind(Effect.RAISES, at=ON_THE_WAY)
def asks_for_too_much(here: Here) -> None:
    """Asks torch for more memory than there is."""
    torch.empty(2**50)


@kind(Effect.RAISES, "function", "getattr", "repr")
def recurses_without_end(here: Here) -> None:
    """Recurses until Python refuses."""
    if here.variant == "function":
        recurses_without_end(here)
    elif here.variant == "getattr":

        class Deep:
            def __getattr__(self, name: str) -> object:
                return getattr(self, name + "x")

        _ = Deep().any
    else:

        class Shown:
            def __repr__(self) -> str:
                return repr(self)

        repr(Shown())


@kind(Effect.ENDS, at=(Place.FORWARD, Place.NODE, Place.FINALIZE, Place.CHILD))
def recurses_past_the_limit(here: Here) -> None:
    """Lifts the limit of recursion, and overflows the stack in a deep `repr`."""
    sys.setrecursionlimit(10**9)
    deep: list[object] = []
    for _ in range(10**6):
        deep = [deep]
    repr(deep)
    os.abort()


@kind(Effect.RAISES)
def writes_too_large_a_file(here: Here) -> None:
    """Limits the size of files, and writes a larger one."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"x" * 2**16)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


@kind(Effect.RAISES)
def runs_out_of_descriptors(here: Here) -> None:
    """Limits descriptors, opens as many, and one more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@kind(Effect.LEAVES, "NOFILE", "AS", "CPU", "FSIZE", "STACK", "CORE", "NPROC", "MEMLOCK")
def lowers_a_limit(here: Here) -> None:
    """Leaves a soft limit of the process lowered."""
    which = getattr(resource, f"RLIMIT_{here.variant}")
    low = {"NOFILE": 20, "AS": _used() + 2**24, "CPU": 3600, "NPROC": 1}.get(here.variant, 2**16)
    resource.setrlimit(which, (low, resource.getrlimit(which)[1]))


@kind(Effect.LEAVES, "NOFILE", "FSIZE", "CORE", expects=ANY)
def lowers_a_limit_for_good(here: Here) -> None:
    """Leaves a hard limit lowered, which only root can raise again."""
    which = getattr(resource, f"RLIMIT_{here.variant}")
    resource.setrlimit(which, (64, 64))
