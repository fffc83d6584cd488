"""The process ends."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal

import torch

from tests.catalogue.torture.fault import BOTH, GLOO, Effect, Here, kind

_TERMINATING = ("KILL", "TERM", "SEGV", "ABRT", "BUS", "FPE", "ILL", "QUIT", "SYS", "USR2", "TRAP")


@kind(Effect.ENDS, *_TERMINATING)
def killed_by_a_signal(here: Here) -> None:
    """Sends itself a signal that ends it."""
    number = signal.Signals[f"SIG{here.variant}"]
    os.kill(os.getpid(), number)
    signal.pause()


@kind(Effect.ENDS, 34, 40, 50, 64)
def killed_by_a_real_time_signal(here: Here) -> None:
    """Sends itself a signal that has no name."""
    os.kill(os.getpid(), here.variant)
    signal.pause()


@kind(Effect.ENDS, 0, 8, 1 << 62)
def segfaults(here: Here) -> None:
    """Reads where no memory is."""
    ctypes.string_at(here.variant)


@kind(Effect.ENDS)
def aborts(here: Here) -> None:
    """Calls `os.abort`."""
    os.abort()


@kind(Effect.ENDS, 0, 1, 77, 255)
def leaves_by_exit(here: Here) -> None:
    """Calls `os._exit`."""
    os._exit(here.variant)


@kind(Effect.ENDS, 0, 3)
def leaves_by_the_c_library(here: Here) -> None:
    """Calls C's `_Exit`, past Python."""
    ctypes.CDLL(None)._Exit(here.variant)


@kind(Effect.ENDS)
def fatal_error_of_python(here: Here) -> None:
    """Calls `Py_FatalError`."""
    ctypes.pythonapi.Py_FatalError(b"deliberate")


@kind(Effect.ENDS)
def overflows_the_c_stack(here: Here) -> None:
    """Recurses in C without end."""
    faulthandler._stack_overflow()


@kind(Effect.ENDS)
def dies_in_a_thread_of_c(here: Here) -> None:
    """A thread that Python knows nothing of aborts."""
    faulthandler._fatal_error_c_thread()
    signal.pause()


@kind(Effect.ENDS)
def frees_what_is_not_its_own(here: Here) -> None:
    """Gives the allocator a pointer that it never gave out."""
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    held = ctypes.create_string_buffer(256)
    libc.free(ctypes.addressof(held) + 8)
    os.abort()  # a lenient allocator


@kind(Effect.ENDS)
def writes_over_an_object(here: Here) -> None:
    """Overwrites the header of a Python object."""
    victim = bytearray(b"x" * 64)
    ctypes.memset(id(victim), 0xFF, 24)
    repr(victim)
    os.abort()


@kind(Effect.ENDS)
def becomes_another_program(here: Here) -> None:
    """Calls `os.execv`."""
    os.execv("/bin/sh", ["sh", "-c", "exit 0"])


@kind(Effect.ENDS, engines=GLOO)
def goes_on_in_a_child(here: Here) -> None:
    """Forks, ends, and lets the child go on with its sockets."""
    if os.fork():
        os._exit(0)


@kind(Effect.ENDS, 1, 2)
def uses_up_its_processor_time(here: Here) -> None:
    """Sets `RLIMIT_CPU` to what it has used already, and computes."""
    used = int(sum(os.times()[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (max(1, used), max(1, used) + here.variant))
    while True:
        pass


@kind(Effect.ENDS)
def filters_its_own_system_calls(here: Here) -> None:
    """Enters seccomp's strict mode: the next system call kills it."""
    set_seccomp, strict = 22, 1
    if ctypes.CDLL(None).prctl(set_seccomp, strict, 0, 0, 0):
        os._exit(1)
    os.getppid()
    os._exit(1)  # a kernel without it


@kind(Effect.ENDS)
def kills_its_own_group(here: Here) -> None:
    """Sends SIGKILL to its process group."""
    os.killpg(0, signal.SIGKILL)


@kind(Effect.ENDS, engines=BOTH)
def terminates_in_c_plus_plus(here: Here) -> None:
    """Calls C++'s `std::terminate`."""
    ctypes.CDLL(None, mode=ctypes.RTLD_GLOBAL)
    terminate = ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev
    terminate()


@kind(Effect.ENDS)
def writes_past_a_tensor(here: Here) -> None:
    """Writes a tensor's memory far past its end."""
    small = torch.zeros(1)
    ctypes.memset(small.data_ptr(), 0xFF, 1 << 40)
