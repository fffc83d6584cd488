"""What driver and hosts send each other, and what goes to the ranks and comes back for one case.

To a host: `Teach`, `RunCase`, `Asked`. From it: `Ready`, `Learned`, `Ended`, `Answered`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tpcheck.case import Case
from tpcheck.event import Event
from tpcheck.placement import Entry, Placement
from tpcheck.plan.parallelized import Promised
from tpcheck.process.aspects import Left
from tpcheck.tensors.names import Pass
from tpcheck.tensors.readings import Reading
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind, Phase, Rule, Uncompiled


@dataclass(frozen=True)
class Work:
    """One case for the ranks, as the driver sends it."""

    case: Case
    bundle: str  # path of the tensors
    params: Mapping[str, Entry]
    inputs: Mapping[str, Entry]
    outputs: Mapping[str, Entry]
    targets: Mapping[tuple[str, str], Entry]
    named: frozenset[str]
    suspects: str  # a folder for local tensors outside their bounds
    computed: frozenset[str] = frozenset()  # buffers that no checkpoint holds
    frozen: frozenset[str] = frozenset()  # parameters that take no gradient
    plan: Promised | None = None  # what the candidate's plan promises of its parameters
    dump: str = ""  # a folder for every local tensor
    saved: bool = False  # whether to count what autograd saves
    watch: Pass | None = None  # the pass whose module boundaries are dumped, too
    follow: bool = False  # whether collectives in backward are to carry their module
    eager: bool = False  # whether what the candidate compiles is to run eagerly
    rules: bool = False  # whether to hold other rules against the tensors, too
    branches: bool = False  # whether to note which the candidate's Python takes
    again: bool = True  # whether a kernel's calls are made again
    configuration: int | None = None  # of autotuned kernels, their index; by default the seed's
    witnesses: frozenset[str] = frozenset()  # kernels and operators whose runs are counted
    readings: Mapping[str, Reading] = field(default_factory=dict)  # of masks
    checkpoint: str = ""  # the folder that the candidate saves to, or loads from
    saving: bool = False  # whether it is to save, and nothing else
    epoch: int = 0

    @property
    def of_kernels(self) -> int:
        """The index of the configuration in which autotuned kernels run."""
        return self.case.seed if self.configuration is None else self.configuration


@dataclass(frozen=True)
class DrawnMask:
    """A random mask that a rank drew.

    Args:
        entry: how it is split, by its shape.
        bits: a digest of it.
        tells: in bits, how much it says that another one is the same.
        where, module: of the draw, in the candidate.
    """

    entry: Mapping[str, Placement]
    bits: str
    tells: float
    where: str
    module: str


@dataclass
class RankReport:
    """What one rank found."""

    rank: int
    mismatches: list[Mismatch] = field(default_factory=list)
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    suspects: dict[tuple[str, str], Entry] = field(default_factory=dict)  # kept for another look
    entries: dict[str, Entry] = field(default_factory=dict)  # parameters' live placements
    events: list[Event] = field(default_factory=list)
    saved: int = 0  # elements that autograd kept after the first forward, besides parameters
    bytes: dict[str, tuple[int, int]] = field(default_factory=dict)  # what → held, due
    #: Sharded parameter → bytes of its storage and its own, where the whole one may be around it;
    #: zeros of one of which the rank has nothing.
    room: dict[str, tuple[int, int]] = field(default_factory=dict)
    usage: float = 0.0
    steps: int = 1  # that were taken, each with its microbatches
    updates: bool = False  # whether something clips gradients or steps an optimizer
    compared: dict[tuple[str, str], Entry] = field(default_factory=dict)  # placed as compared
    #: Buffers that data-parallel ranks share in a way of their own: nothing to hold them against.
    shared: set[tuple[Kind, str]] = field(default_factory=set)
    code: dict[str, str] = field(default_factory=dict)  # module → where it is written, if examined
    extra: dict[str, int] = field(default_factory=dict)  # outputs that the reference has not → size
    compiles: bool = False  # whether the candidate hands something to `torch.compile`
    alarms: set[Rule] = field(default_factory=set)  # other rules that alarm, where asked for
    seconds: dict[str, float] = field(default_factory=dict)
    loaded: list[str] = field(default_factory=list)  # torch's packages, where there are new ones
    left: list[Left] = field(default_factory=list)  # state that the candidate left changed
    configurations: tuple[str, ...] = ()  # of the autotuned kernel that has most
    stopped: bool = False  # whether it ran no further, for what it found; others may wait for it
    unmodelled: str = ""  # what a kernel does that nothing here does as a GPU does
    uncompiled: Uncompiled | None = None  # why what is handed to `torch.compile` ran eagerly
    ways: set[str] = field(default_factory=set)  # that were taken, as words: `CaseResult.ways`
    undefined: set[str] = field(default_factory=set)  # `CaseResult.undefined`
    counted: dict[tuple[Phase, str], int] = field(default_factory=dict)  # runs of witnesses
    drawn: dict[str, DrawnMask] = field(default_factory=dict)  # random masks, by their names
    #: A line and a module that draw masks → how all of these may be read.
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    #: The same → the first step in which each of these gives another mask than the one in use.
    apart: dict[str, dict[Reading, int]] = field(default_factory=dict)


# ---- to a host


@dataclass(frozen=True)
class Teach:
    """A candidate and its spec's callables, by the name `key`.

    Args:
        blob: cloudpickled.
        paths: the driver's `sys.path`.
        files: modules of the driver that no path leads to, name → file.
        modules: those that are imported when it is unpickled.
        loads: parts of torch that its ranks will import, as far as is known.
        variables: of the environment, that the driver has set (None: unset) since it started the
            process that ranks are forked from.
    """

    key: str
    blob: bytes
    paths: list[str]
    files: dict[str, str]
    modules: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    variables: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def imports(self) -> str:
        """A name for what its ranks import: the same for candidates for which it is the same."""
        each = sorted(self.files.items()), sorted(self.variables.items())
        told = repr((self.modules, self.paths, *each))
        return hashlib.sha256(told.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class RunCase:
    """One case of the candidate `key`, for all of the host's ranks that it needs."""

    key: str
    work: Work


@dataclass(frozen=True)
class Asked:
    """`function(mesh, *args)` on every rank of `mesh`, outside any case."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    mesh: dict[str, int]
    epoch: int


# ---- from a host


@dataclass(frozen=True)
class Ready:
    """The host is up, and its ranks have met those of the others."""

    pid: int


@dataclass(frozen=True)
class Learned:
    """The candidate `key` is there, or why it can't be imported."""

    key: str
    error: str | None


@dataclass(frozen=True)
class Ended:
    """What one rank of case number `epoch` found."""

    epoch: int
    rank: int
    outcome: RankReport | Mismatch


@dataclass(frozen=True)
class Answered:
    """What `Asked` came to on one rank.

    Args:
        value: cloudpickled.
        error: the traceback of what it raised.
    """

    rank: int
    epoch: int
    value: bytes
    error: str | None
