"""The zygote as the driver sees it: what templates and ranks are forked from."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from json import dumps

from tpcheck.engines.folder import RunFolder
from tpcheck.engines.forks import Forks
from tpcheck.errors import EngineUnavailable
from tpcheck.process import environment
from tpcheck.protocol import ends
from tpcheck.protocol.ends import LOOPBACK
from tpcheck.protocol.leftovers import INSIDE, end_marked
from tpcheck.vocabulary import ON_GPUS

#: Modules ask whether there is a GPU when they are imported. Without this torch asks CUDA, which
#: nothing that is forked afterwards can use.
BY_NVML = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
#: Seconds that the zygote has to end by itself once its driver has closed the socket.
CLOSE_LIMIT = 5.0
#: Bytes of a zygote's own output that are read for a message.
_SAID = 4096


class ZygoteProcess(Forks):
    """Starts a zygote (`ranks/zygote.py`), which loads torch, without waiting for it.

    Args:
        engine: the engine's name, for messages.
        preload: modules that it imports once for all ranks.
        folder: the run's, for the zygote's own log, and for it to remove should the driver die.
    """

    def __init__(self, engine: str, preload: Sequence[str], folder: RunFolder) -> None:
        mine, theirs = ends.pair()
        super().__init__(engine, mine)
        self.folder = folder
        # without a name: no candidate finds it; `close` closes it
        self._log = tempfile.TemporaryFile(dir=folder.path)  # noqa: SIM115
        environment.watch()
        self._environment = dict(environment.read())
        self._ours = frozenset(_set_for(engine))
        about = {"path": sys.path, "preload": list(preload), "cuda": engine in ON_GPUS}
        imports = dumps(about)
        arguments = [str(theirs.fileno()), str(os.getpid()), str(folder.path), imports]
        with theirs:
            self._process = subprocess.Popen(
                # -P: a file of the user's called like one of the standard library must not win
                [sys.executable, "-P", "-m", "tpcheck.ranks.zygote", *arguments],
                pass_fds=[theirs.fileno()],
                env=os.environ | _set_for(engine) | {INSIDE: folder.mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                # what ends the driver's whole group leaves it: it cleans up after the driver
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def since(self) -> dict[str, str | None]:
        """What the driver has set in its environment (None: unset) since it started the process."""
        found = environment.changed(self._environment)
        return {name: value for name, value in found.items() if name not in self._ours}

    def close(self) -> None:
        """Ends the process, and whatever candidates have started from there."""
        with contextlib.suppress(EngineUnavailable):
            self._send({"dismissed": True})
        self._control.close()
        if not self._asked:
            self._process.kill()  # it may load torch for seconds, for nobody
        try:
            self._process.wait(timeout=CLOSE_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        end_marked(self.folder.mark)

    def wake(self) -> None:
        if self.alive:
            self._process.send_signal(signal.SIGCONT)

    def said(self) -> str:
        with contextlib.suppress(OSError, ValueError):  # of a closed file
            size = os.fstat(self._log.fileno()).st_size
            said = os.pread(self._log.fileno(), _SAID, max(0, size - _SAID))
            return said.decode(errors="replace").strip()[-300:]
        return ""


def _set_for(engine: str) -> dict[str, str]:
    """In the environment of ranks: one thread each, which compiles, too; no port beyond loopback,
    and Triton's interpreter where tensors are on the CPU."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    threads |= {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    device = BY_NVML if engine in ON_GPUS else {"TRITON_INTERPRET": "1"}
    return threads | device | ({} if engine == "torchrun" else LOOPBACK)
