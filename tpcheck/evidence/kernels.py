"""Evidence of what a kernel did to memory, of whether it does the same again, and of what it is
registered as."""

from __future__ import annotations

from dataclasses import dataclass, field

from tpcheck.evidence.failures import Scene
from tpcheck.vocabulary import Access, Habit, OpTest

Program = tuple[int, int, int]


@dataclass(frozen=True)
class Stray:
    """An access outside of every tensor of its launch.

    Args:
        kernel, line: the kernel, and the line of its file.
        program: the program's three numbers.
        tensor: the argument that is nearest.
        offset: bytes from that argument's first element.
        lanes: how many of the access's lanes are outside.
        scene: where the rank was.
    """

    kernel: str
    line: int
    program: Program
    access: Access
    tensor: str
    offset: int
    lanes: int
    scene: Scene = field(default_factory=Scene)


@dataclass(frozen=True)
class Wrapped:
    """An operation of integers whose result does not fit into them.

    Args:
        kernel, line: the kernel, and the line of its file.
        program: the program's three numbers.
        operation: `add`, `sub` or `mul`.
        bits: of the integers.
        scene: where the rank was.
    """

    kernel: str
    line: int
    program: Program
    operation: str
    bits: int
    scene: Scene = field(default_factory=Scene)


@dataclass(frozen=True)
class Unkept:
    """What a kernel promises the compiler, and its numbers are otherwise.

    Args:
        kernel, line: the kernel, and the line of its file.
        program: the program's three numbers.
        promise: by the name that `triton.language` has for it.
        values: what is promised of each dim; none of `assume`.
        scene: where the rank was.
    """

    kernel: str
    line: int
    program: Program
    promise: str
    values: tuple[int, ...]
    scene: Scene = field(default_factory=Scene)


@dataclass(frozen=True)
class Race:
    """Two programs of a launch touch one byte, not both loading and not both by atomics, and
    nothing orders them.

    Args:
        kernel, line: the kernel, and the line of its file at which the first does.
        tensor: the argument that the byte is in.
        offset: bytes from that argument's first element.
        programs: the one that stores, or has an atomic, and the other.
        other: what the other one does.
        access: what the first one does.
    """

    kernel: str
    line: int
    tensor: str
    offset: int
    programs: tuple[Program, Program]
    other: Access
    access: Access = Access.STORE


@dataclass(frozen=True)
class Undisciplined:
    """A call does what no value of its own shows.

    Args:
        habit: what.
        elements: of the tensor, how many it changes, or differ; None where none is meant.
        beside: bytes around the tensor that it changes.
        raised: what it raises then, and where.
    """

    habit: Habit
    elements: int | None = None
    beside: int = 0
    raised: str = ""


@dataclass(frozen=True)
class Misregistered:
    """An op of `torch.library` is not what it is registered as.

    Args:
        op: its name, `library::op`.
        test: of `torch.library.opcheck`, that fails.
        type, text: of what that raised.
    """

    op: str
    test: OpTest
    type: str
    text: str
