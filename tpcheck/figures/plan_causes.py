"""The faults of plans: a closed union of small classes, `PlanCause`.

Data only. A fault's names, its plan key and the suggestions stand in the finding that has it as
its cause; `report/plan_faults.py` has the sentence of each.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.figures.plan_reasons import Reason
from tpcheck.placement import Replicate, Shard

# Where a parameter is on the TP axis; None for a plain tensor, which is whole on every rank.
Place = Shard | Replicate | None

# ---- what a key matched


@dataclass(frozen=True)
class UnmatchedKey:
    """A key that matches no module.

    Args:
        reached: the module down to which it matches; "" for the root.
        part: the part of the key that this module has no child for.
        wrapper: the attribute of a wrapper between the two (`_orig_mod`), where there is one.
    """

    reached: str
    part: str
    wrapper: str | None


@dataclass(frozen=True)
class IgnoredKey:
    """A key that `parallelize_module`, which a factory has called, skips: no module there is called
    `part`."""

    part: str


@dataclass(frozen=True)
class MatchedInPart:
    """A key that matches in some layers, and in others is kept from its module by a wrapper or by
    another name of the module.

    Args:
        matched, expected: how many modules, of how many.
        part: the part of the key that the other layers have no child for.
    """

    matched: int
    expected: int
    part: str


@dataclass(frozen=True)
class UnmatchedDeclaration:
    """A pattern of `Plan(whole=…)` or `Plan(reduced=…)` (the `field`) that matches no parameter."""

    field: str


# ---- a style on its module


@dataclass(frozen=True)
class StyledTwice:
    """A module with several names gets a style under more than one: its hooks would run twice.

    Args:
        other: the name under which it already has a style.
    """

    style: str
    other: str


@dataclass(frozen=True)
class NothingToShard:
    """A style that shards parameters, on a module (of class `module`) that owns none."""

    style: str
    module: str


@dataclass(frozen=True)
class WrongModule:
    """A style of torch's for linears and embeddings, on a module of another class."""

    style: str
    module: str


@dataclass(frozen=True)
class StyleRaised:
    """A style of the user's own that raises on a module of this class; `said` is its error."""

    style: str
    module: str
    said: str


@dataclass(frozen=True)
class Contradicted:
    """Two keys that place one parameter differently: `other` came first."""

    other: str
    other_place: Shard | Replicate
    place: Shard | Replicate


# ---- what must stay together


@dataclass(frozen=True)
class HeadsCut:
    """A split whose pieces are not whole attention heads.

    Args:
        counted: what the configuration calls the number of heads.
        size: of the dim that is split: `heads` times `head_dim`.
    """

    tp: int
    counted: str
    heads: int
    head_dim: int
    size: int


@dataclass(frozen=True)
class GateUpAsOne:
    """A fused [gate | up] weight that is split contiguously: ranks get gate or up, not both."""

    rows: int


@dataclass(frozen=True)
class QkvAsOne:
    """A fused [q | k | v] weight that is split contiguously: ranks get other parts than their
    heads'.

    Args:
        q, kv: rows of q, and of k (those of v are as many).
    """

    q: int
    kv: int


@dataclass(frozen=True)
class TiedApart:
    """Names that are one tensor, which the plan would make into several.

    Args:
        places: (name, where the plan puts it), one for each tensor that it would become.
    """

    places: tuple[tuple[str, Place], ...]

    @property
    def together(self) -> bool:
        """Whether all are put in one place: only the tie itself is lost."""
        return len({place for _, place in self.places}) == 1


# ---- what one module gives the next


@dataclass(frozen=True)
class Unconsumed:
    """Column splits without a row split that consumes their features."""


@dataclass(frozen=True)
class Unfed:
    """Row splits without a column split that feeds them features."""


@dataclass(frozen=True)
class UnevenInput:
    """A row split (torch's `style`) of a size that the degree does not divide: it takes each plain
    tensor for one of equal parts, and the column split before it gives parts that are not."""

    tp: int
    in_features: int
    style: str


@dataclass(frozen=True)
class GathersTokenIds:
    """An embedding whose style takes the token ids, which are replicated, for one rank's shard."""

    style: str


@dataclass(frozen=True)
class ShardsHiddenStates:
    """An embedding whose style leaves each rank a shard of the hidden states, in plain tensors."""

    style: str


@dataclass(frozen=True)
class WholeIntoSequence:
    """Sequence-parallel modules that take the replicated output of row splits (`rows`), in plain
    tensors, for one rank's shard of the sequence.

    Args:
        norms: the sequence-parallel modules.
    """

    norms: tuple[str, ...]
    rows: tuple[str, ...]


@dataclass(frozen=True)
class PartialOverFeatures:
    """Replicated parameters between splits by features: a rank's gradient is that of its features
    (its heads) alone, and nothing sums it."""


@dataclass(frozen=True)
class PartialOverSequence:
    """Replicated parameters on activations that are sharded along the sequence: a rank's gradient
    is that of its tokens alone, and nothing sums it."""


# ---- what is sharded, of the plan or of a parallelized model


@dataclass(frozen=True)
class NotSharded:
    """Parameters that no rank holds less of than the whole, and that nothing declares so."""

    why: Reason


@dataclass(frozen=True)
class Misplaced:
    """A parameter that is not placed as its entry promises."""

    place: Place
    promised: Shard | Replicate


@dataclass(frozen=True)
class Unreached:
    """A parameter that is not placed as its entry promises, since the entry's key matches nothing
    in the model as it is now.

    Args:
        wrapper: the attribute of the wrapper that hides it, where there is one.
    """

    place: Place
    promised: Shard | Replicate
    wrapper: str | None


@dataclass(frozen=True)
class TieLost:
    """Names that were one tensor, and are no more.

    Args:
        places: (name, where it is).
    """

    places: tuple[tuple[str, Place], ...]


OfKey = UnmatchedKey | IgnoredKey | MatchedInPart | UnmatchedDeclaration
OfStyle = StyledTwice | NothingToShard | WrongModule | StyleRaised | Contradicted
OfSplit = HeadsCut | GateUpAsOne | QkvAsOne | TiedApart
OfFlow = (
    Unconsumed
    | Unfed
    | UnevenInput
    | GathersTokenIds
    | ShardsHiddenStates
    | WholeIntoSequence
    | PartialOverFeatures
    | PartialOverSequence
)
OfModel = NotSharded | Misplaced | Unreached | TieLost
PlanCause = OfKey | OfStyle | OfSplit | OfFlow | OfModel
