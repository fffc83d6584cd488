"""What code may leave changed in a process is seen, and put back where it can be."""

from __future__ import annotations

import _thread
import builtins
import faulthandler
import functools
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tpcheck.process import guard


def replaced(*args: Any, **kwargs: Any) -> None:
    """In place of a function of torch's."""


def patch(owner: Any, name: str) -> Callable[[], object]:
    return functools.partial(setattr, owner, name, replaced)


def lower_the_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))


RESTORED: dict[str, tuple[str, Callable[[], object]]] = {
    "grad mode": ("torch.is_grad_enabled", lambda: torch.set_grad_enabled(False)),
    "default dtype": (
        "torch.get_default_dtype",
        lambda: torch.set_default_dtype(torch.float64),
    ),
    "default device": ("torch.get_default_device", lambda: torch.set_default_device("meta")),
    "autocast": (
        "torch.is_autocast_enabled('cpu')",
        lambda: torch.set_autocast_enabled("cpu", True),
    ),
    "autocast dtype": (
        "torch.is_autocast_enabled('cuda')",
        lambda: torch.set_autocast_dtype("cuda", torch.bfloat16),
    ),
    "poison": (
        "torch.use_deterministic_algorithms",
        lambda: torch.use_deterministic_algorithms(True),
    ),
    "fill": (
        "torch.utils.deterministic.fill_uninitialized_memory",
        lambda: setattr(
            torch.utils.deterministic,  # type: ignore[attr-defined]
            "fill_uninitialized_memory",
            not torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        ),
    ),
    "anomaly": (
        "torch.autograd.set_detect_anomaly",
        lambda: torch.autograd.set_detect_anomaly(True),
    ),
    "threads of torch": (
        "torch.get_num_threads",
        lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    ),
    "matmul": (
        "torch.get_float32_matmul_precision",
        lambda: torch.set_float32_matmul_precision("medium"),
    ),
    "denormal": ("torch.set_flush_denormal", lambda: torch.set_flush_denormal(True)),
    "saved tensors": (
        "torch.autograd.graph.saved_tensors_hooks",
        lambda: torch._C._autograd._push_saved_tensors_default_hooks(replaced, replaced),
    ),
    "forward hook": (
        "torch.nn.modules.module._global_forward_hooks",
        lambda: nn.modules.module.register_module_forward_hook(replaced),
    ),
    "all_reduce": ("torch.distributed.all_reduce", patch(dist, "all_reduce")),
    "linear": ("torch.nn.functional.linear", patch(F, "linear")),
    "nn.Linear": ("torch.nn.Linear", patch(nn, "Linear")),
    "Linear.forward": ("torch.nn.modules.linear.Linear.forward", patch(nn.Linear, "forward")),
    "Tensor.backward": ("torch.Tensor.backward", patch(torch.Tensor, "backward")),
    "inherited": ("torch.Tensor.sum", patch(torch.Tensor, "sum")),
    "inherited by a layer": ("torch.nn.modules.linear.Linear.train", patch(nn.Linear, "train")),
    "an optimizer's step": ("torch.optim.sgd.SGD.step", patch(torch.optim.SGD, "step")),
    "an optimizer's function": (
        "torch.optim.sgd.sgd",
        patch(sys.modules["torch.optim.sgd"], "sgd"),
    ),
    "a schedule": (
        "torch.optim.lr_scheduler.ExponentialLR.get_lr",
        patch(torch.optim.lr_scheduler.ExponentialLR, "get_lr"),
    ),
    "a generator": (
        "torch.default_generator",
        lambda: setattr(torch, "default_generator", torch.Generator()),
    ),
    "hides Python's": ("torch.nn.functional.len", patch(F, "len")),
    "a name taken away": ("torch.nn.functional.gelu", lambda: delattr(F, "gelu")),
    "a dtype": ("torch.float64", lambda: setattr(torch, "float64", torch.float32)),
    "a reduction": (
        "torch.distributed.distributed_c10d.ReduceOp.SUM",
        lambda: setattr(dist.ReduceOp, "SUM", dist.ReduceOp.MAX),
    ),
    "builtin": ("builtins.len", patch(builtins, "len")),
    "clock": ("time.monotonic", patch(time, "monotonic")),
    "environment": ("os.environ", lambda: os.environ.update(TPCHECK_LEFT="1")),
    "a variable taken away": ("os.environ", lambda: os.environ.pop("PATH")),
    "folder": ("os.getcwd", lambda: os.chdir("/")),
    "mask": ("os.umask", lambda: os.umask(0o777)),
    "recursion": ("sys.getrecursionlimit", lambda: sys.setrecursionlimit(5000)),
    "switch": ("sys.getswitchinterval", lambda: sys.setswitchinterval(0.5)),
    "collector": ("gc.isenabled", gc.disable),
    "files": ("resource.getrlimit", lower_the_files),
    "handler": ("signal.getsignal", lambda: signal.signal(signal.SIGUSR2, replaced)),
    "alarm": ("signal.getitimer", lambda: signal.alarm(1000)),
    "blocked signals": (
        "signal.pthread_sigmask",
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]),
    ),
    "profile": ("sys.setprofile", lambda: sys.setprofile(replaced)),
}


@pytest.fixture(autouse=True)
def cleaned_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A guard of the test's own, whatever the tested one does."""
    monkeypatch.chdir(tmp_path)
    tracing, last = sys.gettrace(), guard.of_rank()
    yield
    last.restore()
    sys.settrace(tracing)


@pytest.mark.parametrize("what", RESTORED)
def test_what_is_left_changed_is_told_and_restored(what: str) -> None:
    before = guard.of_rank()
    name, change = RESTORED[what]
    change()
    left = before.restore()
    assert [(one.name, one.restored) for one in left] == [(name, True)]
    assert before.restore() == []


def test_a_signal_that_waits_is_taken_before_it_is_let_through() -> None:
    if (child := os.fork()) == 0:  # it would end this process
        before = guard.of_rank()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)
        left = [one.name for one in before.restore()]
        os._exit(left != ["signal.pthread_sigmask"])
    assert os.waitpid(child, 0)[1] == 0


def test_nothing_is_told_where_nothing_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = guard.of_rank()
    layer = nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    with torch.no_grad(), torch.autocast("cpu"):
        layer(torch.ones(1, 2))
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # set anew for each case
        monkeypatch.setenv(name, "3")
    assert before.restore() == []


def test_the_variables_meant_are_told() -> None:
    before = guard.of_rank()
    os.environ.update(TPCHECK_LEFT="1", HOME="/nowhere")
    (left,) = before.restore()
    assert left.which == ("HOME", "TPCHECK_LEFT")


@pytest.mark.parametrize(
    ("name", "entered"),
    [
        ("a guard of dispatch keys", torch._C._AutoDispatchBelowAutograd),
        ("torch._C.DisableTorchFunction", torch._C.DisableTorchFunctionSubclass),
    ],
)
def test_a_guard_of_torchs_that_was_not_left_can_not_be_restored(
    name: str, entered: Callable[[], Any]
) -> None:
    before = guard.of_rank()
    held = entered()
    if hasattr(held, "__enter__"):
        held.__enter__()
    left = [(one.name, one.restored) for one in before.restore()]
    if hasattr(held, "__exit__"):
        held.__exit__(None, None, None)
    del held
    assert left == [(name, False)] and before.restore() == []


class Everything(TorchDispatchMode):
    """A mode that is entered and never left."""


def test_a_mode_that_was_not_left_can_not_be_restored() -> None:
    before = guard.of_rank()
    mode = Everything()
    mode.__enter__()
    left = [(one.name, one.restored) for one in before.restore()]
    mode.__exit__(None, None, None)
    assert left == [("a TorchDispatchMode", False)]


def test_a_thread_that_goes_on_can_not_be_restored() -> None:
    before = guard.of_rank()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="lingers")
    thread.start()
    (left,) = before.restore()
    stop.set()
    thread.join()
    assert (left.name, left.restored, left.which) == ("threading.enumerate", False, ("lingers",))


def test_a_thread_that_threading_does_not_know_is_told() -> None:
    before = guard.of_rank()
    stop = _thread.allocate_lock()
    with stop:
        _thread.start_new_thread(lambda: stop.acquire(), ())
        time.sleep(0.05)  # it begins when it is let
        (left,) = before.restore()
    assert (left.name, left.restored) == ("threading.enumerate", False)
    assert left.which == ("_thread.start_new_thread",)


def test_a_child_that_goes_on_can_not_be_restored() -> None:
    before = guard.of_rank()
    with subprocess.Popen(["sleep", "1000"]) as child:
        left = [(one.name, one.restored) for one in before.restore()]
        child.kill()
    assert left == [("a child process", False)]


def test_a_stream_that_was_replaced_can_not_be_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = guard.of_rank()
    monkeypatch.setattr(sys, "stdout", None)
    assert [one.name for one in before.restore()] == ["sys.stdout"]


def test_faults_that_are_no_longer_told_can_not_be_restored() -> None:
    before = guard.of_rank()
    was = faulthandler.is_enabled()
    (faulthandler.disable if was else faulthandler.enable)()
    left = [(one.name, one.restored) for one in before.restore()]
    (faulthandler.enable if was else faulthandler.disable)()
    assert left == [("faulthandler.is_enabled", False)]


def test_a_state_that_can_not_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = guard.of_rank()
    monkeypatch.setattr(os, "environb", None)
    (left,) = before.restore()
    assert (left.name, left.restored) == (guard.UNREADABLE, False)


def test_each_thread_has_a_state_of_its_own() -> None:
    found = []

    def rank() -> None:
        own = guard.of_thread()
        torch.set_grad_enabled(False)
        found.extend(own.restore())

    shared = guard.of_all_threads()
    thread = threading.Thread(target=rank)
    thread.start()
    thread.join()
    assert [one.name for one in found] == ["torch.is_grad_enabled"]
    assert shared.restore() == []
    torch.set_default_dtype(torch.float64)
    assert [one.name for one in shared.restore()] == ["torch.get_default_dtype"]


def test_a_timer_is_stopped_before_the_handler_that_it_calls_is_taken_away() -> None:
    if (child := os.fork()) == 0:
        held = guard.Guard(guard.resources())
        for _ in range(300):
            signal.signal(signal.SIGALRM, lambda *_: None)
            signal.setitimer(signal.ITIMER_REAL, 1e-5, 1e-4)
            held.restore()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "killed by the timer"
