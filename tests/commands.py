"""`tpcheck …` as a command of its own, without paying for torch's import each time: a process that
has loaded it forks one per command (`multiprocessing`'s fork server), and its zygote."""

from __future__ import annotations

import gc
import multiprocessing
import os
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, BinaryIO

from tests import ROOT
from tests.spare import Nursery, Spare

#: What every command loads. Not the command line itself: its console reads the terminal's width
#: from the environment when it is made.
LOADED = [
    "torch.distributed.tensor",
    "hypothesis",
    "typer",
    "rich.console",
    "tpcheck.search.verify",
    "tpcheck.ranks.template",
    "tests.read_ahead",
]

#: Where zygotes of what commands fork are from: the suite's own, while there is one.
nursery: Nursery | None = None


def environment() -> dict[str, str]:
    """What commands run in: this checkout's code, plain output."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYT", "COLUMNS"))}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "dumb"}


def tpcheck(
    words: Sequence[str], folder: Path, *, program: str = "tpcheck", patience: float | None = None
) -> tuple[int, str]:
    """Runs `tpcheck WORDS` in a folder.

    Args:
        program: `tpcheck` or `pytest`.
        patience: seconds after which it is killed.

    Returns:
        its exit code (minus the signal that killed it), and what it printed on both streams.
    """
    with tempfile.TemporaryFile() as both:
        of = both.fileno()
        code = ended(started(words, folder, out=of, err=of, program=program), patience)
        return code, _printed(both)


def ran(
    words: Sequence[str], folder: Path, more: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """Runs it; its streams apart.

    Args:
        more: variables of its environment.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = ended(started(words, folder, out=out.fileno(), err=err.fileno(), more=more))
        return CompletedProcess([*words], code, _printed(out), _printed(err))


def started(
    words: Sequence[str],
    folder: Path,
    *,
    out: int | None = None,
    err: int | None = None,
    more: Mapping[str, str] | None = None,
    program: str = "tpcheck",
    leads: bool = False,
) -> ForkServerProcess:
    """Starts it.

    Args:
        out, err: descriptors of what it prints to; by default nowhere.
        more: variables of its environment.
        leads: it leads a group of its own, with what it starts.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    env = environment() | dict(more or {})
    asked = nursery and nursery.started()
    with open(os.devnull, "wb") as nowhere:
        streams = [_Sent(nowhere.fileno() if of is None else of) for of in (out, err)]
        given = ((program, *words), str(folder), env, streams, asked, leads)
        process = context.Process(target=_run, args=given)
        process.start()
    return process


class _Sent:
    """A descriptor, sent to the process that is started."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self.number),)


def _received(sent: Any) -> _Sent:
    return _Sent(sent.detach())


def _printed(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def ended(process: ForkServerProcess, patience: float | None = None) -> int:
    """Its exit code, once it has ended, which it does after so many seconds."""
    process.join(patience)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode is not None
    return process.exitcode


def _run(
    words: tuple[str, ...],
    folder: str,
    env: Mapping[str, str],
    streams: Sequence[_Sent],
    asked: socket.socket | None,
    leads: bool,
) -> None:
    """In the forked process: what `python -m tpcheck WORDS` does after the interpreter is up."""
    gc.freeze()
    if leads:
        os.setsid()
    for name, number, sent in zip(("stdout", "stderr"), (1, 2), streams, strict=True):
        os.dup2(sent.number, number)
        os.close(sent.number)
        setattr(sys, name, os.fdopen(os.dup(number), "w", buffering=1))
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    Spare().install(asked)
    sys.path[:] = [folder, str(ROOT), *(p for p in sys.path if p not in ("", folder, str(ROOT)))]
    sys.argv = [*words]
    if words[0] == "pytest":
        import pytest

        sys.exit(pytest.console_main())
    from tpcheck.__main__ import main

    main()
