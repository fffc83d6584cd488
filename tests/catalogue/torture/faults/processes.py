"""Processes that candidates start and do not wait for. Each ends by itself after ten minutes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.catalogue.torture.fault import ANY, GLOO, PASS, Effect, Here, Place, kind

_HERE = (Place.BUILD, Place.FORWARD, Place.NODE, Place.FINALIZE, Place.DESTRUCTOR)
_LONG = 600


def _linger() -> None:
    try:
        time.sleep(_LONG)
    finally:
        os._exit(0)


def tell(pid: int) -> None:
    """Notes a process of which nothing else will tell, for the campaign to look for."""
    path = os.environ.get("TORTURE_PROCESSES")
    if path:
        with open(path, "a") as file:
            file.write(f"{pid}\n")


@kind(Effect.LEAVES, 1, 3, at=_HERE)
def leaves_a_child(here: Here) -> None:
    """Forks children that go on."""
    for _ in range(here.variant):
        child = os.fork()
        if child == 0:
            _linger()
        tell(child)


@kind(Effect.LEAVES, at=_HERE)
def leaves_an_orphan(here: Here) -> None:
    """Forks twice, into a session of its own, like a daemon."""
    child = os.fork()
    if child == 0:
        os.setsid()
        tell(os.getpid())
        if os.fork() == 0:
            tell(os.getpid())
            _linger()
        os._exit(0)
    os.waitpid(child, 0)


@kind(Effect.LEAVES, at=_HERE)
def leaves_a_program(here: Here) -> None:
    """Starts another program, which holds its standard streams."""
    tell(subprocess.Popen(["sleep", str(_LONG)]).pid)


@kind(Effect.LEAVES, at=_HERE)
def leaves_a_program_without_a_mark(here: Here) -> None:
    """Starts a program with an empty environment, in a session of its own."""
    started = subprocess.Popen(["/bin/sleep", str(_LONG)], env={}, start_new_session=True)
    tell(started.pid)


@kind(Effect.LEAVES, at=_HERE)
def leaves_an_orphan_without_a_mark(here: Here) -> None:
    """The same, by way of a process that ends."""
    command = f"/bin/sleep {_LONG} & echo $!"
    shell = ["env", "-i", "setsid", "/bin/sh", "-c", command]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        tell(int(started.stdout.readline()))


@kind(Effect.LEAVES, at=_HERE[1:])
def leaves_a_child_with_its_sockets(here: Here) -> None:
    """Forks a child that keeps every descriptor, by exec too."""
    for name in os.listdir("/proc/self/fd"):
        try:
            os.set_inheritable(int(name), True)
        except OSError:
            continue
    tell(subprocess.Popen(["sleep", str(_LONG)], close_fds=False).pid)


@kind(Effect.ENDS, at=_HERE[1:4])
def dies_with_a_child_on_its_sockets(here: Here) -> None:
    """Forks a child that keeps every descriptor, and dies."""
    child = os.fork()
    if child == 0:
        _linger()
    tell(child)
    os.kill(os.getpid(), signal.SIGKILL)


@kind(Effect.LEAVES, at=_HERE)
def leaves_a_deaf_child(here: Here) -> None:
    """Forks a child that ignores signals."""
    child = os.fork()
    if child == 0:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        _linger()
    tell(child)


@kind(Effect.LEAVES, at=_HERE)
def leaves_a_stopped_child(here: Here) -> None:
    """Forks a child and stops it."""
    child = os.fork()
    if child == 0:
        _linger()
    tell(child)
    os.kill(child, signal.SIGSTOP)


@kind(Effect.LEAVES, at=_HERE)
def leaves_a_dead_child(here: Here) -> None:
    """Forks a child that ends, and never waits for it."""
    if os.fork() == 0:
        os._exit(3)


@kind(Effect.LEAVES, 30, at=_HERE)
def leaves_a_chain_of_children(here: Here) -> None:
    """Forks a process that hops: each forks the next and ends, some thirty times."""
    if os.fork() == 0:
        for _ in range(here.variant):
            time.sleep(0.02)
            if os.fork():
                os._exit(0)
        tell(os.getpid())
        _linger()


@kind(Effect.MEDDLES, 0.05, 0.3, at=_HERE)
def has_a_child_that_kills_it(here: Here) -> None:
    """Forks a child that kills its parent a little later."""
    parent = os.getpid()
    if os.fork() == 0:
        time.sleep(here.variant)
        os.kill(parent, signal.SIGKILL)
        os._exit(0)


@kind(Effect.MEDDLES, at=_HERE)
def has_a_child_that_speaks(here: Here) -> None:
    """Forks a child that raises its way back into the rank's own loop."""
    if os.fork() == 0:
        raise SystemExit(0)


@kind(Effect.MEDDLES, engines=GLOO, at=_HERE, expects=ANY)
def has_a_child_that_returns(here: Here) -> None:
    """Forks, and both go on with the case."""
    os.fork()


@kind(Effect.LEAVES, at=_HERE, expects=PASS)
def leaves_a_pool(here: Here) -> None:
    """Starts a pool of processes, and does not close it."""
    code = f"import time; time.sleep({_LONG})"
    for _ in range(2):
        tell(subprocess.Popen([sys.executable, "-S", "-c", code]).pid)
