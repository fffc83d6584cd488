"""Evidence of a tensor, and of a parameter as a rank holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpcheck.vocabulary import Code, Fault, Kind


@dataclass(frozen=True)
class Values:
    """Elements outside their bounds.

    Args:
        wrong, of: how many elements, of how many.
        norm_error, norm_bound: of the whole tensor, in σ, where that is outside.
        gain_error, gain_bound: the common scale error, where that is outside.
        dtype, expected_dtype: where the dtype is another.
        nan: how many elements are NaN, where any is.
    """

    wrong: int
    of: int
    norm_error: float | None = None
    norm_bound: float | None = None
    gain_error: float | None = None
    gain_bound: float | None = None
    dtype: str | None = None
    expected_dtype: str | None = None
    nan: int | None = None


@dataclass(frozen=True)
class NotAsSaved(Values):
    """Elements of a parameter that are not what they were when it was saved."""


@dataclass(frozen=True)
class Absent:
    """The candidate has no such gradient (None), or returned no such output.

    Args:
        returned, wanted: the names of all outputs, where an output is missing.
    """

    returned: tuple[str, ...] | None = None
    wanted: tuple[str, ...] | None = None


@dataclass(frozen=True)
class WrongShape:
    """The local tensor has another shape than its slice of the reference."""

    shape: tuple[int, ...]
    expected_shape: tuple[int, ...]


@dataclass(frozen=True)
class WrongForm:
    """Not a dense tensor of numbers like the reference's.

    Args:
        form: what makes it another: a dtype (`complex64`), a layout (`sparse_coo`), a class.
        expected_form: the reference's dtype.
    """

    form: str
    expected_form: str


@dataclass(frozen=True)
class PlacedOtherwise:
    """An output that is a DTensor, of another placement than the layout's."""

    placement: str
    expected_placement: str


@dataclass(frozen=True)
class Elsewhere:
    """A rank has what the layout has on other ranks.

    Args:
        here, due: mesh axis → coordinate: of this rank, and of those that are to have it.
    """

    here: Mapping[str, int]
    due: Mapping[str, int]


@dataclass(frozen=True)
class ReplicasDiffer:
    """Ranks that must hold the same bits hold different ones.

    Args:
        of: the kind of the tensor.
        ranks: all that must agree; `differ_from_first`: those that don't agree with the first.
    """

    of: Kind
    ranks: tuple[int, ...]
    differ_from_first: tuple[int, ...]


@dataclass(frozen=True)
class Misheld:
    """A parameter that is not held as the layout says; what is None does not apply to the fault.

    Args:
        shape, expected_shape: local ones.
        axes: mesh axes along which it should be sharded, as in `dp, tp`.
        storage, expected: bytes that the shard keeps alive, and its own; of a checkpoint those
            that the rank has read, and those of its part.
        placement, expected_placement: as the candidate declares it, and the layout's.
        elsewhere: where this rank is, and where the layout has the parameter.
        what: of the parameter, or beside it, keeps a storage alive, where it is not itself.
        inside: another tensor of the rank's, in whose storage the whole one lies.
        parameters: how many there are, none of which is sharded.
        built: what the candidate's `build` returned, where that is not a module.
    """

    fault: Fault
    shape: tuple[int, ...] | None = None
    expected_shape: tuple[int, ...] | None = None
    axes: str | None = None
    storage: int | None = None
    expected: int | None = None
    placement: str | None = None
    expected_placement: str | None = None
    elsewhere: Elsewhere | None = None
    what: str | None = None
    inside: str | None = None
    parameters: int | None = None
    built: str | None = None


@dataclass(frozen=True)
class PlanFault:
    """A finding of an audit: the check's plan is wrong, or was not followed.

    Args:
        reason: the finding's sentence, as `tpcheck audit` prints it.
        names: the modules or parameters that it is about.
    """

    code: Code
    reason: str
    names: tuple[str, ...]
