"""A run under NVIDIA's compute-sanitizer: the command line starts itself anew below it, so that
every process of the run is watched, and the ranks read what it says of their kernels."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

#: Names the tool to run under.
ASKED = "TPCHECK_SANITIZER"
#: Its log, one for all processes of a run: forked ones have none of their own.
LOG = "TPCHECK_SANITIZER_LOG"
#: The one that finds accesses outside of memory; its others look at what Triton's compiler
#: generates, not at what a kernel's author writes.
TOOLS = ("memcheck",)
_COMMAND = "compute-sanitizer"


def asked() -> str | None:
    """The tool that is asked for and not at work yet."""
    return None if LOG in os.environ else os.environ.get(ASKED)


def words() -> list[str]:
    """What stands before a command that is to be run as this one is."""
    tool = os.environ.get(ASKED)
    return [f"{ASKED}={tool}"] if tool and LOG in os.environ else []


def why_not(tool: str) -> str | None:
    """Why it can't be had, in a line."""
    if tool not in TOOLS:
        return f"{ASKED}={tool} is not one of {', '.join(TOOLS)}"
    if shutil.which(_COMMAND) is None:
        return f"{ASKED}={tool} needs {_COMMAND}, of NVIDIA's CUDA toolkit, on PATH"
    return None


def run_again(tool: str, arguments: Sequence[str]) -> int:
    """This command line below the tool; its exit code. Allocations are not kept for reuse: what
    lies behind a tensor would be memory that may be accessed."""
    with tempfile.TemporaryDirectory(prefix="tpcheck-sanitizer-") as folder:
        log = os.path.join(folder, "log")
        own = {LOG: log, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        command = [_COMMAND, "--tool", tool, "--target-processes", "all"]
        command += ["--show-backtrace", "no"]
        command += ["--log-file", log, sys.executable, "-m", "tpcheck", *arguments]
        process = subprocess.Popen(command, env=os.environ | own)

        def pass_on(number: int, frame: FrameType | None) -> None:
            with contextlib.suppress(OSError):  # it has ended
                own = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
                for pid in own.split():
                    os.kill(int(pid), number)

        signal.signal(signal.SIGINT, lambda *_: None)  # the run is told by the terminal, too
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, pass_on)
        return process.wait()
