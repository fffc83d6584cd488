"""The layout of a candidate, read from it as it is on ranks that are not there: shapes, marks,
placements. Its forward runs there, too, whose collectives do nothing, so shapes are right and
numbers are not."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.comms import frames
from tpcheck.errors import InvalidArgument, did_you_mean, let_through, listed
from tpcheck.first.inputs import Given
from tpcheck.placement import Blocks, Placement, Replicate, Shard
from tpcheck.plan.unknown_style import fake_mesh, quiet
from tpcheck.protocol.conventions import named_outputs
from tpcheck.tensors.live import is_dtensor, live_entry, local, partition_entry
from tpcheck.tensors.meshes import of_size
from tpcheck.tensors.names import tensors_of

#: The degrees that `verify` asks for.
DEGREES = (2, 4)
#: Others that are often asked for.
MORE = (3, 8)
Build = Callable[[Any], nn.Module]
#: How inputs and outputs are placed.
Walk = tuple[dict[str, Placement], dict[str, Placement]]


@dataclass
class Read:
    """What a candidate says of itself.

    Args:
        params, inputs, outputs: name → placement of what is not whole.
        degrees: those of `DEGREES` at which it can be built, and runs.
        notes: what a reader should know.
        runs: whether its forward ran, or there was none to run.
        unfit: those of `MORE` at which it can't be built, or does not run.
    """

    params: dict[str, Placement] = field(default_factory=dict)
    inputs: dict[str, Placement] = field(default_factory=dict)
    outputs: dict[str, Placement] = field(default_factory=dict)
    degrees: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    runs: bool = True
    unfit: list[int] = field(default_factory=list)

    @property
    def fits(self) -> tuple[int, ...]:
        """The degrees that it has cases at; empty where it has them at all that were tried."""
        more = [tp for tp in MORE if tp not in self.unfit]
        found = (1, *sorted([*self.degrees, *more]))
        return found if len(found) < 1 + len(DEGREES) + len(MORE) else ()


@dataclass(frozen=True)
class Whole:
    """The module that a candidate is held to.

    Args:
        full: its parameters and buffers.
        outputs: name → shape.
    """

    full: dict[str, Tensor]
    outputs: dict[str, tuple[int, ...]]

    @property
    def parameters(self) -> int:
        """How many numbers they have."""
        return sum(tensor.numel() for tensor in self.full.values())


def whole(module: nn.Module, inputs: Sequence[Given]) -> Whole:
    """Of a module that is not sharded, with what its forward gives.

    Raises:
        InvalidArgument: its forward does not take these.
    """
    given = [one.tensor() for one in inputs]
    try:
        with torch.no_grad():
            outputs = named_outputs(module(*given)) if given else {}
    except InvalidArgument:
        raise
    except BaseException as error:
        let_through(error)
        sizes = ", ".join(f"{one.name} {one.sizes()}" for one in inputs)
        said = frames.in_a_line(error)
        raise InvalidArgument(f"forward of {sizes} {said}: give --input as it takes it") from error
    return Whole(tensors_of(module), {name: tuple(y.shape) for name, y in outputs.items()})


def read(of: Whole, build: Build, inputs: Sequence[Given], *, sequence: bool = False) -> Read:
    """Of the candidate that `build(mesh)` makes of it.

    Args:
        inputs: where there are none, its forward is not run.
        sequence: whether inputs are rather sharded along the sequence than whole.

    Raises:
        InvalidArgument: it can be built at no degree, or has other parameters.
    """
    found, why, unfit = Read(), dict[int, str](), dict[int, str]()
    walks: dict[int, Walk] = {}
    for tp in DEGREES:
        try:
            with fake_mesh(tp) as mesh, silent():
                built = build(mesh)
                params = _params(built, of.full, tp)
                walks[tp] = _walked(built, inputs, of, tp, sequence=sequence)
        except _Unfit as error:
            unfit[tp] = f"its forward {error}"
        except InvalidArgument as error:
            why[tp] = str(error)
            continue
        found.params = found.params or params
    if not walks and not unfit:
        raise InvalidArgument(next(iter(why.values())))
    found.degrees = list(walks or unfit)
    if walks:
        why |= unfit
        found.inputs, found.outputs = next(iter(walks.values()))
    else:
        found.runs = False
        found.notes.append(f"on ranks that are not there {next(iter(unfit.values()))}: {_SAY}")
    found.notes += [f"no cases at tp={tp}: {reason}" for tp, reason in sorted(why.items())]
    found.unfit = [tp for tp in MORE if not _fits(tp, of, build, inputs if walks else ())]
    return found


def _fits(tp: int, of: Whole, build: Build, inputs: Sequence[Given]) -> bool:
    """Whether it can be built at a degree, and runs."""
    with contextlib.suppress(_Unfit, InvalidArgument), fake_mesh(tp) as mesh, silent():
        built = build(mesh)
        _params(built, of.full, tp)
        _walked(built, inputs, of, tp, sequence=False)
        return True
    return False


#: What is to be done where nothing is read from a forward.
_SAY = (
    "where it should run there, it or its plan is wrong; else say in layout() which inputs and "
    "outputs are sharded"
)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Without what torch says of guesses that are wrong."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _params(built: nn.Module, full: Mapping[str, Tensor], tp: int) -> dict[str, Placement]:
    found: dict[str, Placement] = {}
    own = tensors_of(built)
    for name in full:
        if name not in own and isinstance(full[name], nn.Parameter):
            raise InvalidArgument(
                f"the candidate has no {name!r}, which the reference has{did_you_mean(name, own)}: "
                "give a --reference with the same names"
            )
    for name, tensor in own.items():
        if name not in full:
            raise InvalidArgument(
                f"the candidate has {name!r}, which the reference has not"
                f"{did_you_mean(name, full)}: give a --reference with the same names"
            )
        placed = _placed(tensor, full[name], tp)
        if placed is None:
            shapes = f"{list(local(tensor).shape)} at tp={tp}, of {list(full[name].shape)}"
            raise InvalidArgument(f"{name} is {shapes}: no placement explains that")
        if not isinstance(placed, Replicate):
            found[name] = placed
    return found


def _placed(tensor: Tensor, full: Tensor, tp: int) -> Placement | None:
    """As it says itself, or by its shape."""
    if (own := _along_tp(tensor, tp)) is not None:
        return own
    marked = partition_entry(tensor, full)
    by_shape = _by_shape(tuple(tensor.shape), tuple(full.shape), tp)
    if marked is not None and isinstance(marked["tp"], Blocks) and isinstance(by_shape, Shard):
        return marked["tp"]  # what no shape says
    return by_shape


def _along_tp(tensor: Any, tp: int) -> Placement | None:
    """How a DTensor is placed along the axis of all ranks; None of any other tensor."""
    if not is_dtensor(tensor):
        return None
    return live_entry(tensor, of_size(tp)(tensor.device_mesh)).get("tp", Replicate())


def _by_shape(own: tuple[int, ...], full: tuple[int, ...], tp: int) -> Placement | None:
    if own == full:
        return Replicate()
    if len(own) != len(full):
        return None
    dims = [dim for dim, (part, size) in enumerate(zip(own, full, strict=True)) if part != size]
    if len(dims) == 1 and own[dims[0]] == -(-full[dims[0]] // tp):
        return Shard(dims[0])
    return None


def _walked(
    built: nn.Module,
    inputs: Sequence[Given],
    of: Whole,
    tp: int,
    *,
    sequence: bool,
) -> Walk:
    """How inputs and outputs are placed in the first forward that runs and whose shapes can be.

    Raises:
        _Unfit: there is none; it says of the likeliest why not.
    """
    ways: list[int | None] = [1, None, 0, -1] if sequence else [None, 1, 0, -1]
    why: list[_Unfit] = []
    for way in ways if inputs else ():
        try:
            return _one_way(built, inputs, of.outputs, tp, way)
        except _Unfit as error:
            why.append(error)
    if why:
        raise why[0]
    return {}, {}


class _Unfit(Exception):
    """A way to shard the inputs that can't be meant, and what its forward does."""


def _one_way(
    built: nn.Module,
    inputs: Sequence[Given],
    expected: Mapping[str, tuple[int, ...]],
    tp: int,
    dim: int | None,
) -> Walk:
    given, placed = [], dict[str, Placement]()
    for one in inputs:
        sizes = one.sizes()
        if dim is not None and -len(sizes) <= dim < len(sizes) and not sizes[dim] % tp:
            sizes[dim] //= tp
            placed[one.name] = Shard(dim)
        given.append(one.tensor(sizes))
    try:
        with torch.no_grad():
            outputs = named_outputs(built(*given))
            for output in outputs.values():
                local(output).clone()  # else torch complains of a collective that nobody waits for
    except BaseException as error:
        let_through(error)
        raise _Unfit(frames.in_a_line(error)) from error
    if outputs.keys() != expected.keys():
        raise _Unfit(f"gives {listed(outputs)}, and the whole module's {listed(expected)}")
    found = dict[str, Placement]()
    for name, output in outputs.items():
        own = _along_tp(output, tp) or _by_shape(tuple(output.shape), expected[name], tp)
        if own is None:
            shapes = f"{list(output.shape)} at tp={tp}, of {list(expected[name])}"
            raise _Unfit(f"gives {name} as {shapes}")
        if not isinstance(own, Replicate):
            found[name] = own
    return placed, found


def patterned(placed: Mapping[str, Placement], names: Sequence[str]) -> dict[str, Placement]:
    """The same with the numbers of layers as `*`, where all names that then fit are placed so."""
    found: dict[str, Placement] = {}
    for name, own in placed.items():
        pattern = re.sub(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)", "*", name)
        fits = [one for one in names if fnmatchcase(one, pattern)]
        alike = all(placed.get(one) == own for one in fits)
        found[pattern if alike and len(fits) > 1 else name] = own
    return found
