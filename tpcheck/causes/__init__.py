"""The causes that a diagnosis may name: a closed union of small classes, `Cause`.

Each class defines one anomaly: what is wrong, and what evidence shows it. Data only, no torch:
`diagnosis/` finds them, `report/diagnoses/` has the sentence and the JSON of each. A module here, a
module of hypotheses there and a module of sentences have the same name.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.causes.altered import OfAltered, RowsMixed, ScaledByOwnParts
from tpcheck.causes.evident import OfEvidence
from tpcheck.causes.loaded import OfLoading
from tpcheck.causes.losses import OfLosses
from tpcheck.causes.microbatches import FirstPassRepeated, OfMicrobatches
from tpcheck.causes.norms import NormCounts, OfNorms
from tpcheck.causes.reruns import OfReruns
from tpcheck.causes.rows import OfRows
from tpcheck.causes.several import (
    AllScaled,
    BranchAveraged,
    BranchRepeated,
    BranchUnsummed,
    InEveryTerm,
    JoinsEveryTerm,
    OfSeveral,
    ScaledBefore,
    ScaledOverData,
    UnsummedBefore,
)
from tpcheck.causes.steps import OfSteps, UpdateScaled
from tpcheck.causes.structure import OfStructure
from tpcheck.causes.targets import OfTargets
from tpcheck.causes.tensor import BiasRepeated, OfTensor, PartsExchanged, Scaled
from tpcheck.causes.terms import OfTerms
from tpcheck.causes.tied import OfTied
from tpcheck.causes.traced import OfTrace

InAnyDtype = (
    OfStructure
    | OfEvidence
    | OfTensor
    | OfRows
    | OfLoading
    | OfSeveral
    | OfAltered
    | OfTerms
    | OfLosses
    | OfTargets
    | OfTied
    | OfTrace
    | OfNorms
    | OfSteps
    | OfMicrobatches
    | OfReruns
)


@dataclass(frozen=True)
class OnlyInDtype:
    """A cause that shows in the dtype `only_in`, by more than it rounds, and not in float64: the
    candidate takes another path there."""

    cause: InAnyDtype
    only_in: str


@dataclass(frozen=True)
class OnlyInMode:
    """A cause that shows where the case runs in `only_in_mode`, and not in training."""

    cause: InAnyDtype | OnlyInDtype
    only_in_mode: str


@dataclass(frozen=True)
class OnlySavedAt:
    """A cause that shows where ranks of the TP degree `only_saved_at` have saved what these load,
    and not where they have saved it themselves."""

    cause: InAnyDtype | OnlyInDtype | OnlyInMode
    only_saved_at: int


@dataclass(frozen=True)
class WhileSaving:
    """A cause that was seen on the ranks that save, of the TP degree `saved_at`."""

    cause: InAnyDtype
    saved_at: int


Cause = InAnyDtype | OnlyInDtype | OnlyInMode | OnlySavedAt | WhileSaving


def bare(cause: Cause) -> InAnyDtype:
    """The cause, wherever else it does not show."""
    while isinstance(cause, (OnlyInDtype, OnlyInMode, OnlySavedAt, WhileSaving)):
        cause = cause.cause
    return cause


#: Causes that are seen in a factor: at tp=2, what is 2 for any other reason fits them, too.
Factor = Scaled | BiasRepeated | ScaledOverData | AllScaled | FirstPassRepeated
#: Causes that may fit by chance, so that a run on one rank must not show the same.
Coincidence = (
    Factor
    | BranchRepeated
    | BranchAveraged
    | BranchUnsummed
    | JoinsEveryTerm
    | NormCounts
    | PartsExchanged
    | RowsMixed
    | ScaledByOwnParts
    | UnsummedBefore
    | InEveryTerm
    | ScaledBefore
    | UpdateScaled
)
