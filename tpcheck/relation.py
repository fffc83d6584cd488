"""`Relation`: two candidates that must compute the same, where no reference is at hand.

What one of them computes on one rank stands in for the reference: a world of one rank, in the
driver. Its collectives have no peers there, so that nothing of what tensor parallelism may get
wrong is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument
from tpcheck.given import demand, demand_callables
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


#: Numbers of the inputs of a linear function, at most: it is called once for each.
MOST_NUMBERS = 4096
#: How far a function may be from linear, of its largest number, in float64: far more than it
#: rounds. If it were larger, some that are not linear would pass for it; if smaller, large sums
#: would not.
LINEAR = 2.0**-30


class ByItsForward(OnOneRank):
    """The same, of a linear function y = A x, with A taken from forwards alone: column i is what it
    gives for the i-th unit vector. So gradients are Aᵀ g, whatever its own backward says."""

    def __call__(self, case: Case) -> Any:
        built = super().__call__(case)
        if isinstance(built, nn.Module) and any(True for _ in built.parameters()):
            raise TypeError("it has parameters: adjoint=True is for linear functions of inputs")
        return _Forward(built)


class _Forward:
    """A linear function of all float inputs that take gradients, by its columns."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given, how = tree_flatten((args, kwargs))
        at = [i for i, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]
        leaves = [given[i] for i in at]
        with torch.no_grad(), _disable_current_modes():
            outputs, shape, columns = self._columns(given, how, at)
        numbers = torch.cat([leaf.reshape(-1) for leaf in leaves])
        found = [
            numbers.new_zeros(y.numel()).index_add(0, rows, entries * numbers[of]).view(y.shape)
            for y, (rows, of, entries) in zip(outputs, columns, strict=True)
        ]
        return tree_unflatten(found, shape)

    def _columns(
        self, given: list[Any], how: Any, at: list[int]
    ) -> tuple[list[Tensor], Any, list[tuple[Tensor, Tensor, Tensor]]]:
        """What it gives, and of each output its matrix: rows, columns and entries that are not
        zero."""
        sizes = [given[i].numel() for i in at]
        if sum(sizes) > MOST_NUMBERS:
            raise ValueError(
                f"inputs of {sum(sizes)} numbers: adjoint=True calls it once for each of at most "
                f"{MOST_NUMBERS}; give smaller sizes"
            )

        def of(numbers: Tensor) -> list[Tensor]:
            parts = numbers.split(sizes)
            own = {i: part.view(given[i].shape) for i, part in zip(at, parts, strict=True)}
            args, kwargs = tree_unflatten([own.get(i, x) for i, x in enumerate(given)], how)
            return list(tree_flatten(self.function(*args, **kwargs))[0])

        numbers = torch.cat([given[i].reshape(-1) for i in at])
        args, kwargs = tree_unflatten(given, how)
        outputs, shape = tree_flatten(self.function(*args, **kwargs))
        units = torch.eye(len(numbers), dtype=numbers.dtype)
        each = [of(unit) for unit in units]
        matrices = [torch.stack([y[k].reshape(-1) for y in each], 1) for k in range(len(outputs))]
        if numbers.dtype == torch.float64:
            _require_linear(outputs, [matrix @ numbers for matrix in matrices])
        return outputs, shape, [_entries(matrix) for matrix in matrices]


def _require_linear(outputs: list[Tensor], linear: list[Tensor]) -> None:
    for y, by_columns in zip(outputs, linear, strict=True):
        off = (y.reshape(-1) - by_columns).abs()
        if bool((off > LINEAR * (by_columns.abs().amax() if len(off) else 0.0)).any()):
            raise ValueError("it is not linear in its inputs, which adjoint=True is for")


def _entries(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = matrix.nonzero(as_tuple=True)
    return rows, columns, matrix[rows, columns]


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
        adjoint: of a linear function without parameters: its gradients must be ⟨Aᵀg, x⟩ = ⟨g, A x⟩
            of its own forward on one rank, and not what its backward gives there. So a backward
            that is wrong at every degree is seen, as of a hand-written conjugate pair.

    Raises:
        InvalidArgument: as of a check.
    """

    same_as: Candidate | None = None
    adjoint: bool = False

    def __post_init__(self) -> None:
        demand_callables(self, "same_as", optional=True)
        if "reference" in self.overrides:
            raise InvalidArgument("Relation(overrides={'reference': …}): give it as same_as")
        other = self.same_as or self.candidate
        demand(self, "adjoint", isinstance(self.adjoint, bool), "True or False")
        kind = ByItsForward if self.adjoint else OnOneRank
        known = getattr(self.spec, "reference", None)
        if isinstance(self.spec, Spec) and callable(other) and not _is(known, kind, other):
            object.__setattr__(self, "spec", replace(self.spec, reference=kind(other)))
        super().__post_init__()


def _is(reference: object, kind: type[OnOneRank], candidate: Candidate) -> bool:
    return type(reference) is kind and reference.candidate is candidate
