"""Causes that one mismatch of a tensor says by itself."""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.causes.where import Subject
from tpcheck.evidence import Elsewhere, Values
from tpcheck.vocabulary import Kind


@dataclass(frozen=True)
class NoGradient:
    """A gradient is None on `rank` where the reference has one."""

    subject: Subject
    rank: int


@dataclass(frozen=True)
class NotTaken:
    """The candidate has a gradient that is None in the reference, and is not zero."""

    subject: Subject


@dataclass(frozen=True)
class OutputsNamedOtherwise:
    """The candidate returns outputs of other names than the reference's."""

    returned: tuple[str, ...]
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class OnOtherRanks:
    """A rank returns an output that the layout has on other ranks."""

    subject: Subject
    seen: Elsewhere


@dataclass(frozen=True)
class OtherPlacement:
    """An output is a DTensor, of another placement than the layout's."""

    subject: Subject
    placement: str
    expected_placement: str


@dataclass(frozen=True)
class OtherShape:
    """The local tensor has another shape than its slice of the reference."""

    subject: Subject
    shape: tuple[int, ...]
    expected_shape: tuple[int, ...]


@dataclass(frozen=True)
class HoldsNaN:
    """So many elements are NaN where the reference has numbers.

    Args:
        undefined: lines of kernels, as `kernel:line`, that load lanes which their mask leaves out,
            and have no value for them.
    """

    subject: Subject
    nan: int
    undefined: tuple[str, ...] = ()


@dataclass(frozen=True)
class NaNOfArithmetic:
    """So many elements are NaN, and none is where the numbers of the case are near 1."""

    subject: Subject
    nan: int


@dataclass(frozen=True)
class OtherDtype:
    """An output has another dtype than the reference's."""

    subject: Subject
    seen: Values


@dataclass(frozen=True)
class BitsDiffer:
    """Ranks that must hold the same bits hold different ones, and every value is in its bounds.

    Args:
        name, of: the tensor, and its kind.
        ranks: all that must agree; `differ_from_first`: those that don't agree with the first.
    """

    name: str
    of: Kind
    ranks: tuple[int, ...]
    differ_from_first: tuple[int, ...]


OfEvidence = (
    NoGradient
    | NotTaken
    | OutputsNamedOtherwise
    | OnOtherRanks
    | OtherPlacement
    | OtherShape
    | HoldsNaN
    | NaNOfArithmetic
    | OtherDtype
    | BitsDiffer
)
