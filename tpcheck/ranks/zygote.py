"""The process that ranks are forked from: torch is loaded once, each rank costs a fork.

The driver starts it by exec, so nothing of the driver's threads or state is inherited, and sends
it one socket for each host process to fork. When the driver goes, by whatever signal, its end of
the control socket closes (and the parent pid changes): the zygote removes the run's folder and
exits, and the kernel kills every process that it forked.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
from typing import Any


def serve(fd: int, driver: int, folder: str, imports: str) -> None:
    """Forks hosts on request until the driver is gone."""
    control = socket.socket(fileno=fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    wake, poke = os.pipe()
    os.set_blocking(poke, False)
    signal.set_wakeup_fd(poke, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wanted = json.loads(imports)
    _preload(["torch.distributed.tensor", "tpcheck.ranks.host"])
    sys.path[:] = wanted["path"]
    _preload(wanted["preload"])
    try:
        while os.getppid() == driver:
            ready, _, _ = select.select([control.fileno(), wake], [], [], 0.5)
            if wake in ready:
                os.read(wake, 512)
            _reap(control)
            if control.fileno() in ready and not _answer(control, (wake, poke)):
                return
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _preload(modules: list[str]) -> None:
    """What every rank needs is imported before the first fork; optional parts may be missing."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _answer(control: socket.socket, own: tuple[int, int]) -> bool:
    """Handles one request; False when the driver has closed."""
    data, fds, _, _ = socket.recv_fds(control, 1 << 20, 1)
    if not data:
        return False
    request: dict[str, Any] = json.loads(data)
    _preload(request["load"])
    pid = os.fork()
    if pid == 0:
        control.close()
        for descriptor in own:
            os.close(descriptor)
        _become_host(fds[0], request)
    os.close(fds[0])
    _send(control, {"pid": pid, "host": request["host"]})
    return True


def _become_host(fd: int, request: dict[str, Any]) -> None:
    code = 1
    try:
        die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from tpcheck.ranks.host import serve_host

        serve_host(fd, request)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # no interpreter teardown: gloo's aborts now and then


def die_with_parent() -> None:
    """The kernel kills this process when the one that forked it ends, however that ends."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _reap(control: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _send(control, {"dead": pid, "status": os.waitstatus_to_exitcode(status)})


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
