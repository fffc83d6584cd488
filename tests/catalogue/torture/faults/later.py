"""What acts when the case, or the check, may be over."""

from __future__ import annotations

import _thread
import atexit
import ctypes
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tests.catalogue.torture.fault import ANY, GLOO, PASS, Effect, Here, Place, kind

_HERE = (Place.BUILD, Place.FORWARD, Place.NODE, Place.FINALIZE)
_DELAYS = (0.0, 0.05, 0.2, 0.6)


def _after(delay: float, act: Callable[[], Any]) -> None:
    def run() -> None:
        time.sleep(delay)
        act()

    threading.Thread(target=run, daemon=True).start()


@kind(Effect.MEDDLES, *_DELAYS, at=_HERE)
def exits_later(here: Here) -> None:
    """A thread ends the process with exit code 0."""
    _after(here.variant, lambda: os._exit(0))


@kind(Effect.MEDDLES, *_DELAYS, at=_HERE)
def is_killed_later(here: Here) -> None:
    """A thread kills the process."""
    _after(here.variant, lambda: os.kill(os.getpid(), signal.SIGKILL))


@kind(Effect.MEDDLES, 0.1, 0.5, at=_HERE[3:], expects=ANY)
def stops_later(here: Here) -> None:
    """A thread stops the process."""
    _after(here.variant, lambda: os.kill(os.getpid(), signal.SIGSTOP))


@kind(Effect.MEDDLES, *_DELAYS, at=_HERE)
def switches_gradients_off_later(here: Here) -> None:
    """A thread switches the poison of unwritten memory off, and gradients in its own thread."""

    def act() -> None:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float16)

    _after(here.variant, act)


@kind(Effect.MEDDLES, *_DELAYS, at=_HERE)
def patches_later(here: Here) -> None:
    """A thread replaces `dist.all_reduce` and `F.linear`."""

    def act() -> None:
        dist.all_reduce = lambda tensor, *args, **kwargs: None
        torch.nn.functional.linear = lambda x, w, b=None: x @ w.T * 2

    _after(here.variant, act)


@kind(Effect.MEDDLES, KeyboardInterrupt, SystemExit, MemoryError, ValueError, at=_HERE)
def raises_in_the_main_thread(here: Here) -> None:
    """A thread raises an exception in the main thread, a little later."""
    main = threading.main_thread().ident
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    exception = here.variant
    _after(0.1, lambda: raise_in(ctypes.c_ulong(main or 0), ctypes.py_object(exception)))


@kind(Effect.MEDDLES, 0.1, at=_HERE)
def floods_later(here: Here) -> None:
    """A thread prints without end."""

    def act() -> None:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            os.write(1, b"x" * 2**12)

    _after(here.variant, act)


@kind(Effect.MEDDLES, *_DELAYS, at=_HERE)
def closes_descriptors_later(here: Here) -> None:
    """A thread closes every descriptor."""
    _after(here.variant, lambda: os.closerange(3, 1024))


@kind(Effect.MEDDLES, 0.0, 0.2, engines=GLOO, at=_HERE)
def communicates_later(here: Here) -> None:
    """A thread runs a collective."""
    group = here.group
    _after(here.variant, lambda: dist.all_reduce(torch.ones(3), group=group))


@kind(Effect.MEDDLES, 0.05, 0.2, 0.6, at=_HERE, engines=GLOO)
def has_an_alarm_pending(here: Here) -> None:
    """Leaves an alarm that kills the process."""
    signal.setitimer(signal.ITIMER_REAL, here.variant)


@kind(Effect.LEAVES, "real", "virtual", "prof", engines=GLOO)
def has_a_timer_far_off(here: Here) -> None:
    """Leaves a timer that fires in a minute."""
    which = getattr(signal, f"ITIMER_{here.variant.upper()}")
    signal.setitimer(which, 60)


@kind(Effect.LEAVES, engines=GLOO)
def is_interrupted_again_and_again(here: Here) -> None:
    """Leaves a handler and a timer that calls it every millisecond."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)


@kind(Effect.LEAVES)
def leaves_a_thread(here: Here) -> None:
    """Leaves a thread that waits."""
    threading.Thread(target=threading.Event().wait).start()


@kind(Effect.LEAVES, 20, expects=ANY)
def leaves_threads_that_compute(here: Here) -> None:
    """Leaves threads that hold the interpreter's lock, for as long as a case may take."""

    def compute() -> None:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            pass

    for _ in range(here.variant):
        threading.Thread(target=compute, daemon=True).start()


@kind(Effect.MEDDLES, at=_HERE)
def acts_when_collected(here: Here) -> None:
    """The garbage collector ends the process."""

    class Cycle:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            os._exit(0)

    Cycle()


@kind(Effect.MEDDLES, "start", "stop", at=_HERE)
def hooks_the_collector(here: Here) -> None:
    """A callback of the garbage collector raises, and exits at the tenth call."""
    calls = []

    def callback(phase: str, info: dict[str, int]) -> None:
        if phase == here.variant:
            calls.append(phase)
            if len(calls) > 10:
                os._exit(0)
            raise ValueError("deliberate")

    gc.callbacks.append(callback)


@kind(Effect.MEDDLES, at=_HERE)
def acts_when_a_tensor_goes(here: Here) -> None:
    """A weak reference's callback exits."""
    target = here.value if isinstance(here.value, torch.Tensor) else torch.ones(1)
    here.module.ref = weakref.ref(target, lambda _: os._exit(0))


@kind(Effect.LEAVES, expects=PASS)
def would_act_at_the_end(here: Here) -> None:
    """Registers functions to be called when the interpreter ends."""
    atexit.register(time.sleep, 3600)
    threading._register_atexit(time.sleep, 3600)
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(libc.getpid, None, None)


@kind(Effect.MEDDLES, "settrace", "setprofile", at=_HERE)
def acts_on_every_call(here: Here) -> None:
    """A trace function exits after some thousand calls."""
    calls = [0]

    def trace(frame: Any, event: str, argument: Any) -> Any:
        calls[0] += 1
        if calls[0] > 5000:
            os._exit(0)
        return None

    getattr(sys, here.variant)(trace)


@kind(Effect.MEDDLES, at=(Place.FORWARD, Place.FINALIZE))
def acts_on_audit_events(here: Here) -> None:
    """An audit hook, which nobody can remove, raises when sockets or files are used."""
    calls = [0]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "open", "os.remove"):
            calls[0] += 1
            if calls[0] > 3:
                raise ValueError("deliberate")

    sys.addaudithook(hook)


@kind(Effect.MEDDLES, engines=GLOO, at=_HERE)
def is_woken_by_its_own_descriptor(here: Here) -> None:
    """Asks to be signalled whenever its standard error can be written."""
    import fcntl

    fcntl.fcntl(2, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_ASYNC)


@kind(Effect.LEAVES)
def leaves_a_thread_without_a_name(here: Here) -> None:
    """Leaves a thread that `threading` does not know, which switches the poison off."""

    def act() -> None:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            time.sleep(0.01)
            torch.use_deterministic_algorithms(False)

    _thread.start_new_thread(act, ())
