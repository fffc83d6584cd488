"""Two network namespaces that a cable joins, and commands in them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests import ROOT

NAMES = ("tpcheck-0", "tpcheck-1")
CABLE = ("tpcheck-v0", "tpcheck-v1")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 29517
#: Ranks of each host.
EACH = 2


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _in(host: int, *words: str) -> None:
    _ip("netns", "exec", NAMES[host], "ip", *words)


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """Both are there in the block, and nothing of them afterwards.

    Raises:
        SystemExit: this user may not make them, or there is no `ip`.
    """
    try:
        for name in NAMES:
            _ip("netns", "add", name)
        _ip("link", "add", CABLE[0], "type", "veth", "peer", "name", CABLE[1])
        for host, cable in enumerate(CABLE):
            _ip("link", "set", cable, "netns", NAMES[host])
            _in(host, "addr", "add", f"{ADDRESSES[host]}/24", "dev", cable)
            _in(host, "link", "set", "lo", "up")
            _in(host, "link", "set", cable, "up")
        yield
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"hosts: {error}: needs iproute2, and root to make namespaces") from None
    finally:
        for name in NAMES:
            kill(name)
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def cut() -> None:
    """Takes the cable out of the second host."""
    _in(1, "link", "set", CABLE[1], "down")


def joined_again() -> None:
    """Puts it back."""
    _in(1, "link", "set", CABLE[1], "up")


def kill(name: str) -> None:
    """Every process of a host."""
    there = subprocess.run(
        ["ip", "netns", "pids", name], check=False, capture_output=True, text=True
    )
    for pid in map(int, there.stdout.split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def launched(words: Sequence[str], logs: Path) -> list[subprocess.Popen[bytes]]:
    """`tpcheck …` by torchrun on both hosts, a log of each in a folder."""
    logs.mkdir(parents=True, exist_ok=True)
    return [_launched(host, words, logs / f"host{host}.log") for host in range(len(NAMES))]


def _launched(host: int, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(NAMES)}"]
    torchrun += [f"--node-rank={host}", f"--nproc-per-node={EACH}", "--rdzv-backend=c10d"]
    torchrun += [f"--rdzv-endpoint={ADDRESSES[0]}:{PORT}", f"--rdzv-conf=is_host={int(not host)}"]
    torchrun += [f"--local-addr={ADDRESSES[host]}", "-m", "tpcheck", *words]
    entered = ["ip", "netns", "exec", NAMES[host], *torchrun]
    with log.open("wb") as out:
        return subprocess.Popen(entered, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
