"""What a wrong order of parallelisms did to a model: a closed union of small classes,
`OrderCause`, each of one row of the table in `docs/orders.md`.

Data only: `report/orders.py` has the sentence of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tpcheck.tensors.names import Wrapper


class Row(StrEnum):
    """The mistakes of order that tpcheck knows, as reports name them."""

    FSDP_BEFORE_TP = "FSDP before TP"
    CHECKPOINTING_BEFORE_TP = "activation checkpointing before TP"
    COMPILE_BEFORE_TP = "torch.compile before TP"
    FSDP_BEFORE_EP = "FSDP before EP"
    FSDP_BEFORE_FLOAT8 = "Float8 after FSDP"
    REPLACED_AFTER_FSDP = "modules replaced after FSDP"
    FSDP_BEFORE_CHECKPOINTING = "activation checkpointing after FSDP"
    FLOAT8_WITHOUT_HOOKS = "Float8 after TP without its hooks"
    FLOAT8_ALL_GATHER_WITH_TP = "Float8 + TP + float8 all-gather"
    EP_IN_A_BLOCK_UNIT = "MoE + EP with per-block FSDP"
    MOE_WITH_PIPELINE = "MoE + pipeline parallelism"


_BEFORE_TP = {
    Wrapper.FSDP: Row.FSDP_BEFORE_TP,
    Wrapper.CHECKPOINTING: Row.CHECKPOINTING_BEFORE_TP,
    Wrapper.COMPILE: Row.COMPILE_BEFORE_TP,
}


@dataclass(frozen=True)
class NamesChanged:
    """Parameters that TP is meant to shard and did not, under a wrapper that changed their names:
    the plan's keys met no module of theirs."""

    wrapper: Wrapper

    @property
    def row(self) -> Row:
        return _BEFORE_TP[self.wrapper]


@dataclass(frozen=True)
class Converted:
    """FSDP manages parameters of linears that Float8Linear replaced: it gathers into those, and
    the new ones compute with the shard."""

    row: ClassVar = Row.FSDP_BEFORE_FLOAT8


@dataclass(frozen=True)
class Replaced:
    """FSDP manages parameters of modules that other modules took them over from: it gathers into
    those, and the new ones compute with the shard."""

    row: ClassVar = Row.REPLACED_AFTER_FSDP


@dataclass(frozen=True)
class Removed:
    """FSDP manages parameters that the model no longer has."""

    row: ClassVar = Row.FSDP_BEFORE_EP


@dataclass(frozen=True)
class UnitInWrapper:
    """A checkpoint wrapper around an FSDP unit: backward recomputes through FSDP's own hooks."""

    row: ClassVar = Row.FSDP_BEFORE_CHECKPOINTING


@dataclass(frozen=True)
class HooksLost:
    """Float8 modules that have the weight that TP sharded, and none of the hooks that TP put on
    the linear which they replaced."""

    row: ClassVar = Row.FLOAT8_WITHOUT_HOOKS


@dataclass(frozen=True)
class Float8AllGather:
    """Weights that TP shards and that FSDP is to gather in float8, whose operators have no
    sharding rule for DTensor."""

    row: ClassVar = Row.FLOAT8_ALL_GATHER_WITH_TP


@dataclass(frozen=True)
class ExpertsInABlock:
    """One FSDP unit holds experts that EP pruned and parameters of other layers: its
    reduce-scatter meets the all-to-alls of EP in backward.

    Args:
        unit: the module that is the unit; "" for the model.
    """

    unit: str
    experts: tuple[str, ...]
    others: tuple[str, ...]
    row: ClassVar = Row.EP_IN_A_BLOCK_UNIT


@dataclass(frozen=True)
class RoutedInStages:
    """Experts, which tokens reach by their data, on a mesh with pipeline stages, which are cut
    once for all."""

    row: ClassVar = Row.MOE_WITH_PIPELINE


OrderCause = (
    NamesChanged
    | Converted
    | Replaced
    | Removed
    | UnitInWrapper
    | HooksLost
    | Float8AllGather
    | ExpertsInABlock
    | RoutedInStages
)
