"""The processes whose parent this one is.

What is asked of the system here and in `lineage` and `ranks/forker` is taken when tpcheck is
imported: candidates patch `os.getpid`, and the children of another number are killed then.
"""

from __future__ import annotations

import contextlib
import os
import sys
from os import getpid
from pathlib import Path


def children() -> dict[int, str]:
    """Alive or not yet waited for: number → what each is called. Known on Linux alone."""
    if sys.platform != "linux":
        return {}
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # none, as a rule; to look through all processes takes longer
        return {}
    own, found = getpid(), {}
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            # `1234 (a name) S 1 …`: the name may have any character in it
            stat = Path(f"/proc/{number}/stat").read_text(errors="replace")
            before, _, after = stat.rpartition(")")
            if int(after.split()[1]) == own:
                found[int(number)] = before.partition("(")[2]
    return found
