"""What a mismatch's numbers don't say: a closed union of small classes, `Evidence`.

Data only. `report/evidence.py` has the sentence of each, `report/as_json.py` its JSON.
"""

from __future__ import annotations

from tpcheck.evidence.failures import Died, Entered, Raised, Refused, Scene, Stuck, Uneven
from tpcheck.evidence.kernels import Misregistered, Race, Stray, Undisciplined, Unkept, Wrapped
from tpcheck.evidence.masks import (
    MaskOfOtherShape,
    MaskRedrawn,
    MaskRepeated,
    MasksAgree,
    MasksCounted,
    MasksDiffer,
    OfMask,
    OtherRate,
)
from tpcheck.evidence.tensors import (
    Absent,
    Elsewhere,
    Misheld,
    NotAsSaved,
    PlacedOtherwise,
    PlanFault,
    ReplicasDiffer,
    Values,
    WrongForm,
    WrongShape,
)
from tpcheck.evidence.traces import (
    MessagesLost,
    OverBudget,
    OverSaved,
    PathNotTaken,
    Ran,
    TracesDiffer,
    WrongDtype,
)

__all__ = [
    "Absent",
    "Died",
    "Elsewhere",
    "Entered",
    "Evidence",
    "MaskOfOtherShape",
    "MaskRedrawn",
    "MaskRepeated",
    "MasksAgree",
    "MasksCounted",
    "MasksDiffer",
    "MessagesLost",
    "Misheld",
    "Misregistered",
    "NotAsSaved",
    "OfCost",
    "OfKernel",
    "OfMask",
    "OfParameter",
    "OfRank",
    "OfTensor",
    "OfTrace",
    "OtherRate",
    "OverBudget",
    "OverSaved",
    "PathNotTaken",
    "PlacedOtherwise",
    "PlanFault",
    "Race",
    "Raised",
    "Ran",
    "Refused",
    "ReplicasDiffer",
    "Scene",
    "Stray",
    "Stuck",
    "TracesDiffer",
    "Undisciplined",
    "Uneven",
    "Unkept",
    "Values",
    "Wrapped",
    "WrongDtype",
    "WrongForm",
    "WrongShape",
]

OfTensor = Values | Absent | WrongShape | WrongForm | PlacedOtherwise | Elsewhere | ReplicasDiffer
OfParameter = Misheld | PlanFault
OfRank = Raised | Died | Stuck | Refused | Stray | Wrapped | Unkept
OfTrace = TracesDiffer | MessagesLost | PathNotTaken | WrongDtype
OfCost = OverBudget | OverSaved
OfKernel = Race | Undisciplined | Misregistered
Evidence = OfTensor | OfParameter | OfRank | OfTrace | OfCost | OfKernel | OfMask
