"""What a launcher (torchrun, srun, a Kubernetes job) has said to this process: which rank it is, of
how many, and where they meet."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tpcheck.errors import EngineUnavailable

#: Seconds in which all processes of a launch must have met: a node may still be pulling its image.
MEET = 600.0
#: Seconds between two looks at whether somebody is there. Torch's own waits hear of no signal.
_LOOK = 0.1
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: What Slurm calls them.
_SLURM = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS"}
_INTERFACE = 0x8915  # SIOCGIFADDR


@dataclass(frozen=True)
class Launch:
    """One process of a launch.

    Args:
        rank: of it, 0 for the one that draws, poses and judges.
        size: how many there are.
        address, port: of the launcher's store.
        hosted: whether the launcher keeps that store, and not the first process.
        attempt: how often the launch was started again.
    """

    rank: int
    size: int
    address: str
    port: int
    hosted: bool = False
    attempt: int = 0

    def store(self) -> Any:
        """The launcher's store, under names of this attempt's.

        Raises:
            EngineUnavailable: the others can't be met there.
        """
        from torch._C import _distributed_c10d as c10d

        if self.hosted or self.rank > 0:
            self._await_store()
        try:
            store = c10d.TCPStore(
                self.address,
                self.port,
                self.size,
                is_master=not self.hosted and self.rank == 0,
                wait_for_workers=False,
                timeout=timedelta(seconds=MEET),
                multi_tenant=True,
            )
        except Exception as error:
            said = str(error).strip().splitlines()[0]
            raise EngineUnavailable(
                f"engine 'torchrun': no store at {self.address}:{self.port}: {said}"
            ) from None
        return c10d.PrefixStore(f"tpcheck/{self.attempt}", store)

    def said(self, name: str) -> bytes:
        """What the first process has said under this name; waits for it.

        Raises:
            EngineUnavailable: it says nothing in time, or is gone.
        """
        store, deadline = self.store(), time.monotonic() + MEET
        try:
            while not store.check([name]):
                if time.monotonic() > deadline:
                    raise EngineUnavailable(
                        f"engine 'torchrun': rank 0 did not come within {MEET:g} s"
                    )
                time.sleep(_LOOK)
            return bytes(store.get(name))
        except RuntimeError as error:  # torch's, of a store that is gone
            raise EngineUnavailable(
                f"engine 'torchrun': rank 0 is gone: {str(error).splitlines()[0]}"
            ) from None

    def _await_store(self) -> None:
        """Waits until somebody listens where the store is to be.

        Raises:
            EngineUnavailable: nobody does in time.
        """
        deadline = time.monotonic() + MEET
        while True:
            try:
                socket.create_connection((self.address, self.port), timeout=MEET).close()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise EngineUnavailable(
                        f"engine 'torchrun': no store at {self.address}:{self.port} within "
                        f"{MEET:g} s: {error}"
                    ) from None
            time.sleep(_LOOK)

    def store_of(self, world: int) -> str:
        """By which the ranks of the n-th world meet."""
        return f"tcp://{self.address}:{self.port}/tpcheck/{self.attempt}/world{world}"

    def own_address(self) -> str:
        """This machine's, as the store's sees it."""
        with socket.socket(_family(self.address), socket.SOCK_DGRAM) as asking:
            asking.connect((self.address, self.port))  # which sends nothing
            return str(asking.getsockname()[0])

    def interface(self) -> str | None:
        """The network interface that this address is of, for gloo; None where that is not known."""
        own = self.own_address()
        for _, name in socket.if_nameindex():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
                try:
                    wanted = struct.pack("256s", name.encode()[:15])
                    found = fcntl.ioctl(asking.fileno(), _INTERFACE, wanted)[20:24]
                except OSError:
                    continue
            if socket.inet_ntoa(found) == own:
                return name
        return None


def launch(environment: Mapping[str, str] = os.environ) -> Launch:
    """What this process was told.

    Raises:
        EngineUnavailable: it was not started by a launcher.
    """
    told = {name: environment.get(name) or _of_slurm(name, environment) for name in _NEEDED}
    if missing := [name for name, value in told.items() if not value]:
        raise EngineUnavailable(
            f"engine 'torchrun' needs a launcher, and {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set; run it as "
            "torchrun --nproc-per-node=2 -m tpcheck …"
        )
    try:
        rank, size, port = (int(told[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        attempt = int(environment.get("TORCHELASTIC_RESTART_COUNT", "0"))
    except ValueError:
        given = ", ".join(f"{name}={told[name]!r}" for name in _NEEDED)
        raise EngineUnavailable(f"engine 'torchrun': {given} are not numbers") from None
    if not 0 < port < 1 << 16:
        raise EngineUnavailable(f"engine 'torchrun': MASTER_PORT={port} is not a port")
    if not 0 <= rank < size:
        raise EngineUnavailable(f"engine 'torchrun': RANK={rank} is not one of WORLD_SIZE={size}")
    hosted = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return Launch(rank, size, told["MASTER_ADDR"], port, hosted, attempt)


def launched_by(environment: Mapping[str, str] = os.environ) -> str | None:
    """The launcher that has started several of this process; None where none has."""
    several = environment.get("WORLD_SIZE", "1") not in ("", "1")
    if "TORCHELASTIC_RUN_ID" in environment and several:
        return "torchrun"
    return None


def several(launcher: str) -> str:
    """What is wrong with a command that a launcher has started several times."""
    return f"{launcher} has started several of this, each of which would run everything"


def _of_slurm(name: str, environment: Mapping[str, str]) -> str:
    return environment.get(_SLURM.get(name, ""), "")


def _family(address: str) -> socket.AddressFamily:
    return socket.getaddrinfo(address, None)[0][0]
