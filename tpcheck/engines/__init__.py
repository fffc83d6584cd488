"""Engines: what runs the ranks. One interface, `Engine`, for every kind.

`gloo`, `nccl` and `gloo-cuda` are processes, `threads` is one process with all ranks as threads.
All are forked from a zygote that has torch loaded, kept warm, and recovered after a hang or a
crash. `gloo-cuda` has tensors on GPUs, which any number of ranks share, and gloo's collectives.
`torchrun` is gloo's ranks in the processes that a launcher has started, on one machine or several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpcheck.errors import EngineUnavailable, counted
from tpcheck.protocol.ends import SHARED_GPUS, are_shared
from tpcheck.vocabulary import ON_GPUS


@dataclass(frozen=True)
class Kind:
    """What an engine can and can't do."""

    name: str
    processes: bool
    cannot: tuple[str, ...] = ()  # what a spec may need that this engine lacks

    @property
    def device(self) -> str:
        """Where its tensors are."""
        return "cuda" if self.name in ON_GPUS else "cpu"


KINDS = {
    "gloo": Kind("gloo", processes=True),
    "nccl": Kind("nccl", processes=True),
    "gloo-cuda": Kind("gloo-cuda", processes=True),
    "torchrun": Kind("torchrun", processes=True),
    "threads": Kind("threads", processes=False, cannot=("rng", "hang", "compile")),
}


def require(name: str, ranks: int) -> Kind:
    """The engine's kind; `EngineUnavailable` with the reason where it can't run here."""
    if name not in KINDS:
        raise EngineUnavailable(f"engine {name!r} is not one of {', '.join(KINDS)}")
    reason = why_not(name, ranks)
    if reason:
        raise EngineUnavailable(f"engine {name!r} can't run here: {reason}")
    return KINDS[name]


#: Ranks that an engine has, at most.
MOST = 64


def why_not(name: str, ranks: int) -> str | None:
    """Why the engine can't run `ranks` ranks here, in one line; None where it can."""
    if ranks < 1 or ranks > MOST:
        return f"{ranks} ranks were asked for; give 1 to {MOST}"
    if name == "torchrun":
        return _why_not_launched(ranks)
    return _why_not_on_gpu(name, ranks) if name in ON_GPUS else None


def _why_not_on_gpu(name: str, ranks: int) -> str | None:
    import torch
    import torch.distributed as dist

    if not torch.cuda.is_available():
        return "no CUDA device is visible to torch; use --engine gloo"
    if name != "nccl":
        return None
    if not dist.is_nccl_available():
        return "this build of torch has no NCCL; use --engine gloo"
    there = torch.cuda.device_count()
    if there < ranks and not are_shared():
        return (
            f"{ranks} ranks need a GPU each, of which torch sees {there}: give --ranks {there} and "
            f"degrees up to it, set {SHARED_GPUS}=1 to have them share, or use --engine gloo-cuda"
        )
    return None


def _why_not_launched(ranks: int) -> str | None:
    from tpcheck.engines.launch import launch

    try:
        own = launch()
    except EngineUnavailable as error:
        return str(error).removeprefix("engine 'torchrun' ")
    size = own.size
    if own.rank > 0:
        return (
            f"this is the process of rank {own.rank}, and rank 0's runs the checks; "
            "tpcheck verify --engine torchrun does as it says"
        )
    there = counted(size, "process", "processes")
    return None if ranks <= size else f"{ranks} ranks were asked for, and {there} started"


def ranks_for(degrees: Sequence[int], engine: str = "gloo") -> int:
    """How many ranks serve these degrees: the largest, and room for a dp axis of 2 up to 4, as far
    as there are GPUs for it where each rank needs one."""
    wanted = max([*degrees, min(4, 2 * min(degrees))])
    if engine != "nccl" or are_shared():
        return wanted
    return max([*degrees, min(wanted, _gpus())])


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()
