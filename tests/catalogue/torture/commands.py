"""Commands of the campaign in processes of their own, and folders of their own where allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests import ROOT

#: What the checks of a generated file begin with.
HEAD = '''"""Checks of the campaign."""
from fixtures.parallel.linear import RowLinear
from tests.candidates import OneRankIsKilled, linear
from tests.catalogue.torture import known
from tpcheck import Check, specs

'''


def python(*words: str) -> list[str]:
    """A Python program of this checkout, as a command."""
    return [sys.executable, *words]


def tpcheck(*words: str) -> list[str]:
    """`tpcheck WORDS` as a command."""
    return python("-m", "tpcheck", *words)


def environment(**more: str) -> dict[str, str]:
    """What commands run in."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "200", **more}


def with_shared_memory(size: str, command: Sequence[str]) -> list[str]:
    """The command in a mount namespace whose `/dev/shm` is its own."""
    mounted = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
    return ["unshare", "-rm", "sh", "-c", mounted, "sh", *command]


def can_mount() -> bool:
    """Whether mount namespaces are allowed here."""
    if shutil.which("unshare") is None:
        return False
    tried = with_shared_memory("1m", ["true"])
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


def crashing(folder: Path, count: int) -> Path:
    """A file of checks whose last rank is killed."""
    file = folder / "crashing.py"
    lines = (
        f'c{i:03} = Check(specs.row_linear(), linear(OneRankIsKilled), name="crash_{i:03}")\n'
        for i in range(count)
    )
    file.write_text(HEAD + "".join(lines))
    return file


def mixed(folder: Path, count: int) -> Path:
    """A file of checks of which every other one fails."""
    file = folder / "test_mixed.py"
    lines = []
    for i in range(count):
        cls = "known.WithoutItsReduction" if i % 2 else "RowLinear"
        lines.append(f'c{i:03} = Check(specs.row_linear(), linear({cls}), name="check_{i:03}")\n')
    tests = [
        f"def test_{i:03}(tpcheck_engine):\n"
        f"    verify(c{i:03}, engine=tpcheck_engine, examples=3, degrees=(2,))\n"
        for i in range(count)
    ]
    file.write_text(HEAD + "from tpcheck import verify\n" + "".join(lines) + "\n".join(tests))
    return file
