"""The process that all of a run is forked from: torch is loaded once, each rank costs a fork.

The driver starts it by exec, so nothing of the driver's threads or state is inherited, and has it
fork hosts, and templates of candidates (`ranks/template.py`). When the driver goes, by whatever
signal, its end of the control socket closes (and the parent pid changes): the zygote kills every
process that it forked and every one that these forked, removes the run's folder and exits.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from json import dumps, loads
from pathlib import Path
from typing import Any

from tpcheck.process.heap import keep_freed
from tpcheck.process.turns import wake_in_turn
from tpcheck.protocol import ends
from tpcheck.protocol.leftovers import INSIDE, end_marked, remove_unheld
from tpcheck.ranks.forker import LOOK, Forker, preload

#: What ranks would import in their first case.
FIRST_USED = ["numpy.ctypeslib", "numpy.random"]
#: What nearly every file of checks imports: else the template of each would load Hypothesis.
OF_CHECKS = ["tpcheck.specs", "tpcheck.strategies"]
#: Seconds in which a driver that dies lets go of the run's folder, after its socket has closed.
LET_GO = 2.0


class Zygote(Forker):
    """Forks hosts and templates until the driver is gone."""

    def __init__(self, fd: int, driver: int, folder: str) -> None:
        super().__init__(ends.taken_over(fd), driver)
        self.folder = Path(folder)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
        wake_in_turn()
        keep_freed()

    def serve(self, imports: str) -> None:
        """Loads what ranks need, then answers."""
        try:
            self._load(loads(imports))
            self.answer()
        finally:
            self._end()

    def _load(self, wanted: dict[str, Any]) -> None:
        """Imports; a module that takes for ever does not outlive the driver. What they make stays:
        to look for garbage among it takes a fifth of the time of loading torch."""
        gc.disable()
        signal.signal(signal.SIGALRM, lambda *_: self._end() if not self.parent_lives() else None)
        signal.setitimer(signal.ITIMER_REAL, LOOK, LOOK)
        own = ["torch.distributed.tensor", "tpcheck.ranks.template"]
        preload([*own, *OF_CHECKS, *FIRST_USED])
        sys.path[:] = wanted["path"]
        preload(wanted["preload"])
        if wanted["cuda"] and wanted["preload"] and _forks_lose_cuda():
            self._load_less(wanted)
        from tpcheck.process.guard import read_ahead
        from tpcheck.ranks.compiled import forget_rules

        read_ahead()
        forget_rules()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        gc.freeze()
        gc.enable()

    def _load_less(self, wanted: dict[str, Any]) -> None:
        """Begins anew without the modules, which each rank then imports for itself."""
        signal.setitimer(signal.ITIMER_REAL, 0)  # it would go on
        control = self.control.fileno()
        os.set_inheritable(control, True)
        given = [control, self.parent, self.folder, dumps({**wanted, "preload": []})]
        own = [sys.executable, "-P", "-m", "tpcheck.ranks.zygote", *map(str, given)]
        os.execv(sys.executable, own)

    def become(self, request: dict[str, Any], talks: int, memory: int) -> None:
        from tpcheck.process.loaded import inherit
        from tpcheck.ranks.host import prepare, serve_host
        from tpcheck.ranks.template import serve_template

        inherit()  # it loads what the driver knows of
        if "template" in request:
            serve_template(talks, memory, request["template"])
        else:
            serve_host(talks, memory, request, prepare(request["engine"]))

    def _end(self) -> None:
        """Kills all that was forked from here and, where the driver is dead, removes its folder."""
        self.end_children()
        end_marked(os.environ[INSIDE])
        deadline = time.monotonic() + LET_GO
        with contextlib.suppress(OSError):
            while not self.dismissed and not remove_unheld(self.folder):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
        os._exit(0)


def _forks_lose_cuda() -> bool:
    """Whether CUDA was asked something here, after which nothing that is forked can use it. Only
    such a process is told."""
    import torch

    pid = os.fork()
    if pid == 0:
        os._exit(torch.cuda._is_in_bad_fork())
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) != 0


if __name__ == "__main__":
    Zygote(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]).serve(sys.argv[4])
