"""`tpcheck …` as a command of its own, without paying for torch's import each time: a process that
has loaded it forks one per command (`multiprocessing`'s fork server), and its zygote."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import ROOT
from tests.spare import Spare

#: What every command loads. Not the command line itself: its console reads the terminal's width
#: from the environment when it is made.
LOADED = [
    "torch.distributed.tensor",
    "hypothesis",
    "typer",
    "rich.console",
    "tpcheck.search.verify",
    "tpcheck.ranks.template",
]


def environment() -> dict[str, str]:
    """What commands run in: this checkout's code, plain output."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYT", "COLUMNS"))}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "dumb"}


def tpcheck(
    words: Sequence[str], folder: Path, *, patience: float | None = None
) -> tuple[int, str]:
    """Runs `tpcheck WORDS` in a folder.

    Args:
        patience: seconds after which it is killed.

    Returns:
        its exit code (minus the signal that killed it), and what it printed on both streams.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    with tempfile.NamedTemporaryFile() as named:
        given = (tuple(words), str(folder), environment(), named.name)
        process = context.Process(target=_run, args=given)
        process.start()
        process.join(patience)
        if process.exitcode is None:
            process.kill()
            process.join()
        printed = Path(named.name).read_text(errors="replace")
    assert process.exitcode is not None
    return process.exitcode, printed


def _run(words: tuple[str, ...], folder: str, env: Mapping[str, str], printed: str) -> None:
    """In the forked process: what `python -m tpcheck WORDS` does after the interpreter is up."""
    out = os.open(printed, os.O_WRONLY | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(out, descriptor)
    for stream, descriptor in (("stdout", 1), ("stderr", 2)):
        setattr(sys, stream, os.fdopen(os.dup(descriptor), "w", buffering=1))
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    Spare().install()
    sys.path[:] = [folder, str(ROOT), *(p for p in sys.path if p not in ("", folder, str(ROOT)))]
    sys.argv = ["tpcheck", *words]
    from tpcheck.cli.main import main

    main(list(words))
