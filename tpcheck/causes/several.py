"""Causes that show in several tensors of a case, or in the trace. R is the TP degree."""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.causes.where import Subject


@dataclass(frozen=True)
class BranchUnsummed:
    """The sum over the ranks is too large by R − 1 times what all modules but `branch` send back,
    or give: that one's gradient, or output, is not summed over the ranks, the others' are."""

    subject: Subject
    branch: str


@dataclass(frozen=True)
class BranchRepeated:
    """The tensor is off by `times` = R − 1 times what `branch` sends back, or gives."""

    subject: Subject
    branch: str
    times: int


@dataclass(frozen=True)
class BranchAveraged:
    """Of what `branch` sends back, or gives, there is 1 / `degree`: the sum over the ranks was
    divided."""

    subject: Subject
    branch: str
    degree: int


@dataclass(frozen=True)
class UnsummedBefore:
    """The sum over `ranks`, which should be replicas, is the reference once what each of them adds
    (`joined`: parameters, inputs, cotangents) counts once: what comes before it is not summed."""

    subject: Subject
    ranks: tuple[int, ...]
    joined: tuple[str, ...]


@dataclass(frozen=True)
class InEveryTerm:
    """As `UnsummedBefore`, of terms whose sum is taken after: each rank has added it to its own."""

    subject: Subject
    ranks: tuple[int, ...]
    joined: tuple[str, ...]


@dataclass(frozen=True)
class ScaledBefore:
    """Everything but what each rank adds (`joined`) is `factor`, R or 1/R, times the reference's:
    the sum before it."""

    subject: Subject
    factor: float
    joined: tuple[str, ...]


@dataclass(frozen=True)
class JoinsEveryTerm:
    """The tensor is off by `times` = R − 1 times the input or cotangent `tensor`: each rank adds
    it before the sum over the ranks."""

    subject: Subject
    tensor: str
    times: int


@dataclass(frozen=True)
class ScaledOverData:
    """A gradient is `factor` times the reference, where the factor is the size `dp`, or 1/dp:
    summed where the spec averages, or the other way round.

    Args:
        axes: those of the mesh that are as large, where it may be a sum over any of them, or a
            division; of a part of dp none.
    """

    subject: Subject
    factor: float
    ranks: tuple[int, ...]
    dp: int
    axes: tuple[str, ...] = ("dp",)


@dataclass(frozen=True)
class OwnDataOnly:
    """A gradient that the spec combines over dp is that of each dp coordinate's own data."""

    subject: Subject
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class SomeDataOnly:
    """A gradient that the spec combines over dp is that of some dp coordinates.

    Args:
        rank: one that has it.
        coordinates: those whose data that is of.
        dp: how many there are.
    """

    subject: Subject
    rank: int
    coordinates: tuple[int, ...]
    dp: int


@dataclass(frozen=True)
class SummedOverData:
    """What `rank` has is the sum of the references of all dp groups: the group is too large.

    Args:
        mean: their mean it is.
        world: whether the group may have others than those along dp.
    """

    subject: Subject
    rank: int
    groups: int
    mean: bool = False
    world: bool = True


@dataclass(frozen=True)
class PiecesOverWorld:
    """A sharded gradient that the spec combines over dp is `factor` times the sum of the `pieces`
    that the ranks of one dp coordinate have."""

    subject: Subject
    factor: float
    pieces: int


@dataclass(frozen=True)
class Overwritten:
    """A tensor that autograd had saved was written over before backward read it.

    Args:
        where: the line that wrote it or, where nobody saw that, the one that had it saved.
        op: the collective that wrote it, where one did.
    """

    where: str
    op: str | None = None


@dataclass(frozen=True)
class AllScaled:
    """Every wrong gradient of a parameter, at the element where it is furthest off, is `factor`
    times the reference.

    Args:
        tensors: how many elements were seen.
        axes: the mesh axes whose size the factor is, or has as its inverse; none for the world.
    """

    factor: float
    tensors: int
    axes: tuple[str, ...]


OfSeveral = (
    BranchUnsummed
    | BranchRepeated
    | BranchAveraged
    | UnsummedBefore
    | InEveryTerm
    | ScaledBefore
    | JoinsEveryTerm
    | ScaledOverData
    | OwnDataOnly
    | SomeDataOnly
    | SummedOverData
    | PiecesOverWorld
    | Overwritten
    | AllScaled
)
