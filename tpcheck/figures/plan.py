"""What an audit of a plan comes to, as data: findings, rows of entries and of parameters.

`report/plan.py` writes it, as text and as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tpcheck.figures.order_causes import OrderCause
from tpcheck.figures.plan_causes import PlanCause
from tpcheck.figures.plan_reasons import Reason
from tpcheck.vocabulary import Code

# The codes that an audit gives, the most telling first: an entry that matches nothing is the
# cause of the parameters that stay whole.
MOST_TELLING = (
    Code.PLAN_ENTRY_UNMATCHED,
    Code.TIED_WEIGHTS_SPLIT,
    Code.WRONG_PLACEMENT,
    Code.PARAMETER_NOT_SHARDED,
    Code.ORDER_OF_PARALLELISMS,
)


class Source(StrEnum):
    """Where a plan came from: by that a message says how to declare what is meant."""

    PYTHON = "python"  # `Check(plan=…)`, `tpcheck.audit`, an adapter
    COMMAND = "command"  # `tpcheck audit` with a plan
    FACTORY = "factory"  # `tpcheck audit` of a factory that parallelizes its module itself


@dataclass(frozen=True)
class Finding:
    """One fault of a plan.

    Args:
        code: one of `MOST_TELLING`.
        cause: which fault it is.
        names: the modules or parameters that it is about, full names.
        entry: the plan's key, where one is at fault.
        suggestions: names that the key could have meant, the likeliest first.
        source: where the plan came from.
        message: a sentence with the names in it; "" until `plan.findings.reported` writes it.
    """

    code: Code
    cause: PlanCause | OrderCause
    names: tuple[str, ...]
    entry: str | None = None
    suggestions: tuple[str, ...] = ()
    source: Source = Source.PYTHON
    message: str = ""


@dataclass(frozen=True)
class EntryRow:
    """One entry of the plan: the modules (or parameters) that its key matched, of how many."""

    key: str
    style: str
    matched: tuple[str, ...]
    expected: int
    sharded: int  # parameters that it shards
    suggestions: tuple[str, ...] = ()


@dataclass(frozen=True)
class ParameterRow:
    """One parameter: where it is placed, and why.

    Args:
        placement: in DTensor's words, on the TP axis; "whole" for a plain tensor.
        why: the entry and style that placed it, or why it stays whole.
        reason: `why`, in words.
        elements: of the full tensor.
        held: bytes on the rank that holds most of it.
        promised: bytes there if the plan did what it is meant to do.
    """

    name: str
    shape: tuple[int, ...]
    placement: str
    why: Reason
    reason: str
    entry: str | None
    elements: int
    held: int
    promised: int


@dataclass
class Audit:
    """What came of a plan on a model.

    Args:
        tp: degree of the TP axis.
        live: whether placements were read from a parallelized model, or follow from the plan.
        whole_bytes: of all parameters, unsharded; a tied weight counts once.
        promised_bytes: per rank, if everything that is not declared whole is sharded.
        held_bytes: on the rank that holds most.
    """

    tp: int
    live: bool
    entries: list[EntryRow] = field(default_factory=list)
    parameters: list[ParameterRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    whole_bytes: int = 0
    promised_bytes: int = 0
    held_bytes: int = 0

    @property
    def codes(self) -> list[Code]:
        """The codes found, each once, the most telling first."""
        said = {finding.code for finding in self.findings}
        return [code for code in MOST_TELLING if code in said]
