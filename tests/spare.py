"""A zygote that a command need not start: forked from the process that the command is, before it
has done anything, since that has loaded torch already."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

#: Bytes of a message, at most: the environment and the paths that a zygote is given.
_MOST = 1 << 20


class Spare:
    """A process that becomes the zygote that is started first; it ends where none is."""

    def __init__(self) -> None:
        self._mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if not self.pid:
            with contextlib.suppress(BaseException):
                self._mine.close()
                _serve(theirs)
            os._exit(1)
        theirs.close()

    def install(self) -> None:
        """Has it taken for the process that `ZygoteProcess` starts first, while this process
        lives; by this process alone, whose child it is."""
        spares, owner = [self], os.getpid()

        class Popen(subprocess.Popen[bytes]):
            def _execute_child(self, args: list[str], *how: Any) -> None:
                own = os.getpid() == owner and "tpcheck.ranks.zygote" in args
                if not (spares and own):
                    return super()._execute_child(args, *how)
                env, pipes, given = how[5], how[9:15], args[-4:]
                self.pid = spares.pop().become(given, env, log=pipes[-1])
                self._child_created = True
                return self._close_pipe_fds(*pipes)

        patch("tpcheck.engines.zygote_process.subprocess.Popen", Popen).start()

    def become(self, arguments: list[str], env: Mapping[str, str], *, log: int) -> int:
        """Lets it go on as a zygote with these arguments; its number."""
        message = json.dumps({"arguments": arguments, "env": dict(env)}).encode()
        socket.send_fds(self._mine, [message], [int(arguments[0]), log])
        self._mine.close()
        return self.pid


def _serve(asks: socket.socket) -> None:
    """In the forked process: waits for what the zygote is told, and is it."""
    os.closerange(3, asks.fileno())
    os.closerange(asks.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    message, descriptors, _, _ = socket.recv_fds(asks, _MOST, 2)
    if not message:
        return
    given = json.loads(message)
    control, log = descriptors
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor, own in ((nowhere, 0), (nowhere, 1), (log, 2)):
        os.dup2(descriptor, own)
    for descriptor in (nowhere, log, asks.detach()):
        os.close(descriptor)
    os.setsid()
    os.environ.clear()
    os.environ.update(given["env"])
    _, driver, folder, imports = given["arguments"]
    from tpcheck.ranks.zygote import Zygote

    os.set_inheritable(control, True)
    Zygote(control, int(driver), folder).serve(imports)
