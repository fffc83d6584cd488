"""Where and with what a run was measured: the commit, the versions, the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from tpcheck import __version__
from tpcheck.process.cores import cores


def where() -> dict[str, Any]:
    """As JSON: `commit` of tpcheck's own checkout (None where it is installed, not checked out),
    with a `+` where files were changed since; versions; the machine, and its load before the run.
    """
    import torch

    return {
        "commit": commit(Path(__file__).parent),
        "tpcheck": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "cores": cores(),
        "load": round(os.getloadavg()[0], 2),
    }


def commit(folder: Path) -> str | None:
    """The commit that a folder of a checkout is at."""
    head = _git(folder, "rev-parse", "HEAD")
    if head is None or _git(folder, "ls-files", "--error-unmatch", ".") is None:
        return None  # installed somewhere below a checkout of something else
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return head + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def processor() -> str:
    """Its name, as far as the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
