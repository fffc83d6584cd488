"""What a rank does to the processes beside it."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

from tests.catalogue.torture.fault import ANY, GLOO, PASS, Effect, Here, Place, kind

_ACTIVE = (Place.BUILD, Place.FORWARD, Place.NODE, Place.FINALIZE, Place.CHILD, Place.THREAD)


def peers() -> list[int]:
    """The other ranks' processes: children of the same zygote."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == os.getppid():
                found.append(int(entry.name))
    return found


@kind(Effect.KILLS, "KILL", "SEGV", "ABRT", "TERM", engines=GLOO, at=_ACTIVE[:4])
def kills_its_peers(here: Here) -> None:
    """Sends every other rank a signal that ends it."""
    for pid in peers():
        os.kill(pid, signal.Signals[f"SIG{here.variant}"])


@kind(Effect.KILLS, 40, 64, engines=GLOO, at=_ACTIVE[:4])
def kills_its_peers_by_a_real_time_signal(here: Here) -> None:
    """Sends every other rank a signal without a name."""
    for pid in peers():
        os.kill(pid, here.variant)


@kind(Effect.KILLS, "KILL", "TERM", "SEGV", "HUP", at=_ACTIVE[:4])
def kills_the_zygote(here: Here) -> None:
    """Ends the process that ranks are forked from."""
    os.kill(os.getppid(), signal.Signals[f"SIG{here.variant}"])
    signal.pause()


@kind(Effect.MEDDLES, at=_ACTIVE[:4])
def outlives_the_zygote(here: Here) -> None:
    """Is no longer killed with the zygote, and kills it."""
    set_pdeathsig = 1
    ctypes.CDLL(None).prctl(set_pdeathsig, 0)
    os.kill(os.getppid(), signal.SIGKILL)


@kind(Effect.LEAVES, "STOP", "TSTP", at=(Place.FORWARD, Place.FINALIZE), expects=PASS)
def stops_the_zygote(here: Here) -> None:
    """Stops the process that ranks are forked from."""
    os.kill(os.getppid(), signal.Signals[f"SIG{here.variant}"])


@kind(Effect.HANGS, engines=GLOO, at=(Place.FORWARD,), expects=frozenset({"FAIL", "UNKNOWN"}))
def stops_its_peers(here: Here) -> None:
    """Sends every other rank SIGSTOP."""
    for pid in peers():
        os.kill(pid, signal.SIGSTOP)


@kind(Effect.MEDDLES, 10, engines=GLOO)
def shakes_its_peers(here: Here) -> None:
    """Sends every other rank the signal for a stack, many times."""
    for _ in range(here.variant):
        for pid in peers():
            os.kill(pid, signal.SIGUSR1)


@kind(Effect.MEDDLES, "INT", "CHLD", "ALRM", "PIPE", "CONT", "WINCH")
def signals_the_zygote(here: Here) -> None:
    """Sends the zygote a signal that it should not mind."""
    os.kill(os.getppid(), signal.Signals[f"SIG{here.variant}"])


@kind(Effect.LEAVES, 19, engines=GLOO, expects=PASS)
def is_nice(here: Here) -> None:
    """Lowers its own and its parent's priority."""
    for pid in (0, os.getppid()):
        os.setpriority(os.PRIO_PROCESS, pid, here.variant)


@kind(Effect.MEDDLES, 1, 5, expects=ANY)
def traces_its_parent(here: Here) -> None:
    """Attaches to the zygote by ptrace, and lets it be stopped."""
    attach = 16
    ctypes.CDLL(None).ptrace(attach, os.getppid(), 0, 0)
