"""The rank does not go on. Each costs the time limit, twice or more: `campaign.py` has few."""

from __future__ import annotations

import fcntl
import os
import queue
import re
import select
import signal
import socket
import tempfile
import threading
import time

import torch

from tests.catalogue.torture.fault import Effect, Here, Place, kind


@kind(Effect.HANGS)
def sleeps(here: Here) -> None:
    """Sleeps for an hour."""
    time.sleep(3600)


@kind(Effect.HANGS)
def spins(here: Here) -> None:
    """Loops in Python."""
    while True:
        pass


@kind(Effect.HANGS, at=(Place.FORWARD, Place.NODE))
def spins_in_c(here: Here) -> None:
    """Holds the interpreter's lock in C: a regular expression that backtracks."""
    re.match(r"(a|a)*b", "a" * 64)


@kind(Effect.HANGS)
def waits_for_its_own_lock(here: Here) -> None:
    """Takes a lock twice."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@kind(Effect.HANGS)
def waits_for_a_thread(here: Here) -> None:
    """Joins a thread that does not end."""
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    thread.join()


@kind(Effect.HANGS)
def waits_for_a_queue(here: Here) -> None:
    """Gets from a queue into which nobody puts."""
    queue.Queue[int]().get()


@kind(Effect.HANGS, "STOP", at=(Place.FORWARD, Place.NODE, Place.FINALIZE))
def stops_itself(here: Here) -> None:
    """Sends itself SIGSTOP."""
    os.kill(os.getpid(), signal.Signals[f"SIG{here.variant}"])


@kind(Effect.HANGS, at=(Place.FORWARD, Place.NODE, Place.FINALIZE))
def waits_for_a_child(here: Here) -> None:
    """Waits for a child that does not end."""
    child = os.fork()
    if child == 0:
        signal.pause()
    os.waitpid(child, 0)


@kind(Effect.HANGS, at=(Place.FORWARD,))
def waits_in_a_deaf_child(here: Here) -> None:
    """Waits for a child that ignores every signal that can be ignored."""
    child = os.fork()
    if child == 0:
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if number < 32:
                signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(1)
    os.waitpid(child, 0)


@kind(Effect.HANGS)
def reads_an_empty_pipe(here: Here) -> None:
    """Reads a pipe into which nobody writes."""
    reads, _ = os.pipe()
    os.read(reads, 1)


@kind(Effect.HANGS)
def fills_a_pipe(here: Here) -> None:
    """Writes a pipe from which nobody reads."""
    _, writes = os.pipe()
    os.write(writes, b"x" * 2**20)


@kind(Effect.HANGS)
def accepts_a_connection(here: Here) -> None:
    """Waits for a connection that nobody makes."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("")
        server.listen()
        server.accept()


@kind(Effect.HANGS)
def waits_for_a_locked_file(here: Here) -> None:
    """Locks a file twice."""
    with tempfile.NamedTemporaryFile() as first, open(first.name) as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX)


@kind(Effect.HANGS)
def selects_nothing(here: Here) -> None:
    """Waits for no descriptor, without a limit."""
    select.select([], [], [])


@kind(Effect.HANGS, at=(Place.FORWARD, Place.FINALIZE))
def waits_with_signals_blocked(here: Here) -> None:
    """Blocks every signal, and sleeps."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(3600)


@kind(Effect.HANGS, at=(Place.FORWARD, Place.NODE))
def never_ends_in_autograd(here: Here) -> None:
    """A backward that begins another one, for ever."""
    x = torch.ones((), requires_grad=True)
    while True:
        (x * x).backward()


@kind(Effect.HANGS, at=(Place.FORWARD,))
def catches_everything(here: Here) -> None:
    """Goes on whatever is raised in it."""
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            continue
