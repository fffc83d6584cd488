"""`Relation`: two candidates that must compute the same, where no reference is at hand.

What one of them computes on one rank stands in for the reference: a world of one rank, in the
driver. Its collectives have no peers there, so that nothing of what tensor parallelism may get
wrong is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import nn

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument
from tpcheck.given import demand_callables
from tpcheck.process.alone import alone, mesh_of_one
from tpcheck.spec import Spec
from tpcheck.tensors.live import is_dtensor
from tpcheck.tensors.names import tensors_of

if TYPE_CHECKING:
    from tpcheck.check import Candidate


class OnOneRank:
    """case → a candidate as it is on one rank: a reference.

    Args:
        candidate: `build(case, mesh)`.
    """

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate

    def __call__(self, case: Case) -> Any:
        axes = dict.fromkeys(case.mesh, 1)
        with alone():
            built = self.candidate(replace(case, mesh=axes, saved_at=0), mesh_of_one([*axes]))
        if not callable(built):
            raise TypeError(f"on one rank the candidate is a {type(built).__name__}, not a module")
        whole = tensors_of(built) if isinstance(built, nn.Module) else {}
        for name, tensor in whole.items():
            if is_dtensor(tensor):
                raise TypeError(
                    f"on one rank {name} is a DTensor; give the module without its plan as same_as"
                )
        return built


@dataclass(frozen=True, eq=False)
class Relation(Check):
    """A check in which another candidate, or the same one, on one rank is the reference.

    `Relation(spec, candidate=build)` says that a degree changes nothing, and so that all degrees
    are one; `Relation(spec, candidate=fused, same_as=unfused)` that two ways to compute it are one.
    Everything else is as in a `Check`: cases, gradients, bounds, reports.

    Args:
        spec: as of a check; its reference is not asked for, and may be None.
        candidate: as of a check.
        same_as: `build(case, mesh)`, called in the driver with a mesh of one rank that has the
            case's axes. Its parameters have the names that the candidate's have, and are whole.
            By default the candidate.

    Raises:
        InvalidArgument: as of a check.
    """

    same_as: Candidate | None = None

    def __post_init__(self) -> None:
        demand_callables(self, "same_as", optional=True)
        if "reference" in self.overrides:
            raise InvalidArgument("Relation(overrides={'reference': …}): give it as same_as")
        other = self.same_as or self.candidate
        if isinstance(self.spec, Spec) and callable(other) and not _is(self.spec.reference, other):
            object.__setattr__(self, "spec", replace(self.spec, reference=OnOneRank(other)))
        super().__post_init__()


def _is(reference: object, candidate: Candidate) -> bool:
    return isinstance(reference, OnOneRank) and reference.candidate is candidate
