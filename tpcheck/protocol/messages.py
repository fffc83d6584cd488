"""What goes to the ranks for one case, and what each sends back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tpcheck.case import Case
from tpcheck.placement import Entry
from tpcheck.plan.parallelized import Promised
from tpcheck.verdict import Mismatch


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
    plan: Promised | None = None  # what the candidate's plan promises of its parameters
    dump: str | None = None  # a folder for every local tensor
    saved: bool = False  # whether to count what autograd saves
    watch: int | str | None = None  # the microbatch whose module borders are dumped, too
    follow: bool = False  # whether collectives in backward are to carry their module
    eager: bool = False  # whether what the candidate compiles is to run eagerly
    rules: bool = False  # whether to hold other rules against the tensors, too
    epoch: int = 0


@dataclass
class RankReport:
    """What one rank found."""

    rank: int
    mismatches: list[Mismatch] = field(default_factory=list)
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    suspects: dict[tuple[str, str], Entry] = field(default_factory=dict)  # kept for another look
    entries: dict[str, Entry] = field(default_factory=dict)  # parameters' live placements
    events: list[dict[str, Any]] = field(default_factory=list)
    bytes: int = 0  # parameters held
    saved: int = 0  # elements that autograd kept after the first forward, besides parameters
    usage: float = 0.0
    compared: int = 0  # tensors held against their bounds
    uncompiled: bool = False  # what the candidate compiles ran eagerly
    alarms: set[str] = field(default_factory=set)  # other rules that alarm, where asked for
    seconds: dict[str, float] = field(default_factory=dict)
