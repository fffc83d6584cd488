"""What a kernel is held to besides its values: what it changes, and whether it does the same again.

A second call has fresh inputs of the same numbers, a third one other numbers, and a second backward
goes through the second call's graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from tpcheck.comms import frames
from tpcheck.discipline import Kernel
from tpcheck.errors import CollectiveMismatch, InvalidArgument
from tpcheck.evidence import Undisciplined
from tpcheck.ranks.kept import Kept, Returned, Tensors, lacking, same
from tpcheck.ranks.remembered import remembered
from tpcheck.tensors.names import UPSTREAM
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Habit, Kind

_T = TypeVar("_T")

#: How many more calls must give the same, where a call may be wrong whatever it is given. Fewer,
#: and one that is wrong each fifth time is said to go by addresses.
CALLS = 10
#: What is raised, and is nothing that a call does when it is made again.
_NOT_ITS_OWN = (InvalidArgument, CollectiveMismatch)
#: What a gradient that is another one after other calls comes from, where it is right before them.
_REUSES = {Habit.NOT_REPEATED: Habit.REUSES_SAVED}
#: Before the name of an input, of its gradient among outputs.
_GRADIENT = "gradient of "


class Discipline:
    """Of one kernel on this rank.

    Args:
        rules: what it may do.
        call: inputs → outputs.
        told: is given each mismatch.
        alone: whether there is one rank. Where there are several, all make the same calls, whatever
            each sees.
        recorder: in which backwards run.

    `retains` is whether a graph may be kept for a second backward: a compiled one may not. `over`
    is whether this rank has raised where others may not have, and makes no more of the calls.
    """

    retains = True
    over = False

    def __init__(
        self,
        rules: Kernel,
        rank: int,
        call: Callable[[Tensors], Mapping[str, Tensor]],
        told: Callable[[Mismatch], None],
        *,
        alone: bool = True,
        recorder: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.rules, self.rank, self.call, self._told = rules, rank, call, told
        self._recorder = recorder or contextlib.nullcontext()
        self.alone, self._changes = alone, False  # whether a call was not the same again

    def unchanged(self, inputs: Kept, cotangents: Kept) -> None:
        """Inputs and upstream gradients are as they were."""
        for name, found in inputs.changed(Habit.CHANGES_INPUT):
            if name not in self.rules.overwrites or found.beside:
                self._tell(name, found)
        for name, found in cotangents.changed(Habit.CHANGES_COTANGENT):
            if UPSTREAM + name not in self.rules.overwrites or found.beside:
                self._tell(name, found)

    @contextmanager
    def apart(self, outputs: Tensors, gradients: Tensors) -> Iterator[None]:
        """What another call does in the block leaves these alone, which this one has returned."""
        kept = {Habit.REUSES_OUTPUT: Kept(outputs), Habit.REUSES_GRADIENT: Kept(gradients)}
        yield
        for habit, one in kept.items():
            self._tell_overwritten(one, habit)

    def repeated(
        self,
        first: Tensors,
        gradients: Tensors,
        fresh: Callable[[], dict[str, Tensor]],
        seeds: Callable[[], Tensors],
        *,
        others: int = 1,
    ) -> None:
        """The same again: the first outputs stay as they are, the second ones have their bits, and
        so have the gradients of two more backwards.

        Args:
            first, gradients: what the call gave, and what backward left.
            fresh: makes inputs of the same numbers.
            seeds: makes cotangents, by the outputs' names. Both are laid out in memory as the first
                ones, since sums may depend on that.
            others: how many calls on other numbers follow, of which none may write into the first
                outputs.
        """
        again = self.call(inputs := fresh())
        self._compare(Habit.NOT_REPEATED, first, again)
        kept = Kept(first)
        with torch.no_grad(), contextlib.suppress(Exception):  # other numbers may not be allowed
            for _ in range(others):
                self.call({n: 0.5 - t if t.is_floating_point() else t for n, t in inputs.items()})
        self._tell_overwritten(kept, Habit.REUSES_OUTPUT)
        goes = not self.rules.overwrites and self._backwards(again, gradients, inputs, seeds)
        # rows of a sparse gradient that are met twice add up in another order with others
        plain = all(gradient.layout is torch.strided for gradient in gradients.values())
        if goes and plain and not self.over:
            self._shared(gradients, inputs, seeds)
        if others > 1 and not self.over:
            self._met_again(fresh, seeds)
        self._tell_overwritten(kept, Habit.REUSES_OUTPUT)  # by a ring of more buffers

    def _met_again(
        self, fresh: Callable[[], dict[str, Tensor]], seeds: Callable[[], Tensors]
    ) -> None:
        """What is kept of inputs and upstream gradients, from a call and its backward to others."""
        inputs, others, returned = fresh(), fresh(), Returned()
        mine, theirs = ({UPSTREAM + n: seed for n, seed in seeds().items()} for _ in range(2))

        def call(given: Tensors) -> Tensors:
            leaves = {name: given[name] for name in inputs}
            outputs = dict(self.call(leaves))
            if self.rules.overwrites:
                return outputs
            _forget_gradients(leaves.values())
            upstream = {name.removeprefix(UPSTREAM): given[name] for name in mine}
            roots, made = roots_and_seeds(outputs, upstream)
            with returned.by(leaves, beside=given.values()):
                if roots:
                    self._backward(roots, made)
            left = {_GRADIENT + name: one for name, one in gradients_of(leaves).items()}
            return {**outputs, **left}

        last: Tensors | None = None
        apart: list[tuple[str, int]] = []
        for last, own in remembered(call, {**inputs, **mine}, other := {**others, **theirs}):
            apart += _apart(last, own)
        more = CALLS if last is not None and (apart or not self.alone) else 0
        again = [call(other) for _ in range(more)]
        stays = all(same(last or {}, one) for one in again)
        for name, count in apart:
            habit = Habit.GOES_BY_ADDRESS if stays else Habit.NOT_REPEATED
            self._tell(name, Undisciplined(habit, count))
        for name, found in returned.changed.items():
            self._tell(name, found)

    def _backwards(
        self, outputs: Tensors, gradients: Tensors, inputs: Tensors, seeds: Callable[[], Tensors]
    ) -> bool:
        """Whether there is anything to go backward from."""
        apart: dict[Habit, Tensors] = {}
        habits = (Habit.NOT_REPEATED, Habit.SECOND_BACKWARD)
        for habit in habits if self.retains else habits[:1]:
            _forget_gradients(inputs.values())
            roots, made = roots_and_seeds(outputs, seeds())
            if not roots:
                return False
            error = _tried(partial(self._backward, roots, made, retains=self.retains))
            if error is not None:
                if habit is Habit.SECOND_BACKWARD:
                    self._tell_raised(habit, gradients, error)
                    break
                if not self._changes:  # outputs of another shape, say
                    raise error
                self.over = not self.alone
                return False
            if not same(gradients, own := gradients_of(inputs)):
                apart[habit] = own
        looks = Habit.NOT_REPEATED in apart or not self.alone
        # without another call before it does not differ, where that has written over what the
        # first one had kept
        if looks and not self.over and self._is_plain(gradients, inputs, seeds):
            apart = {_REUSES.get(habit, habit): own for habit, own in apart.items()}
        for habit, own in apart.items():
            self._compare(habit, gradients, own)
        return True

    def _is_plain(self, gradients: Tensors, inputs: Tensors, seeds: Callable[[], Tensors]) -> bool:
        """Whether a call and its backward give these gradients."""
        _forget_gradients(inputs.values())
        error = _tried(lambda: self._backward(*roots_and_seeds(self.call(inputs), seeds())))
        return error is None and same(gradients, gradients_of(inputs))

    def _shared(self, gradients: Tensors, inputs: Tensors, seeds: Callable[[], Tensors]) -> None:
        """The call on what has another consumer gives these gradients, too. Where it does not, and
        does the second time, or a call without one does not either, that is not why."""
        first = _tried(partial(self._of_shared, inputs, seeds))
        alike = not isinstance(first, Exception) and same(gradients, first)
        if alike and self.alone:
            return
        why = not self._changes
        if self.alone or not isinstance(first, Exception):
            again = _tried(partial(self._of_shared, inputs, seeds))
            stays = isinstance(again, Exception) or not same(gradients, again)
            why = self._is_plain(gradients, inputs, seeds) and stays
        habit = Habit.SHARED_INPUT if why else Habit.NOT_REPEATED
        if isinstance(first, Exception):
            self._tell_raised(habit, gradients, first)
        elif not alike:
            self._compare(habit, gradients, first)

    def _of_shared(self, inputs: Tensors, seeds: Callable[[], Tensors]) -> Tensors:
        """The gradients of a call on what is not a leaf and has another consumer, which sends zeros
        back."""
        leaves = {leaf: None for leaf in inputs.values() if leaf.requires_grad}
        _forget_gradients(leaves)
        # not `view_as`, which makes other strides of a dim of one
        own = {leaf: torch.ops.aten.alias(leaf) for leaf in leaves}
        outputs = self.call({name: own.get(leaf, leaf) for name, leaf in inputs.items()})
        others = [one * 1.0 for one in own.values()]
        roots, made = roots_and_seeds(outputs, seeds())
        self._backward([*roots, *others], [*made, *(torch.zeros_like(one) for one in others)])
        return gradients_of(inputs)

    def _backward(self, roots: list[Tensor], seeds: list[Tensor], *, retains: bool = False) -> None:
        with self._recorder:
            torch.autograd.backward(roots, seeds, retain_graph=retains)

    def _compare(self, habit: Habit, first: Tensors, second: Tensors) -> None:
        for name, count in _apart(first, second):
            self._tell(name, Undisciplined(habit, count))

    def _tell_raised(self, habit: Habit, gradients: Tensors, error: Exception) -> None:
        self.over = not self.alone
        found = Undisciplined(habit, raised=frames.in_a_line(error))
        self._tell(next(iter(gradients), "output"), found)

    def _tell_overwritten(self, kept: Kept, habit: Habit) -> None:
        for name, found in kept.overwritten(habit):
            self._tell(name, found)

    def _tell(self, name: str, found: Undisciplined) -> None:
        self._changes |= found.habit is Habit.NOT_REPEATED
        self._told(Mismatch(name, Kind.DISCIPLINE, self.rank, detail=found))


def _tried(do: Callable[[], _T]) -> _T | Exception:
    """What it gives, or what it raises."""
    try:
        return do()
    except _NOT_ITS_OWN:
        raise
    except Exception as error:
        return error


def _apart(first: Tensors, second: Tensors) -> list[tuple[str, int]]:
    """The tensors of which elements differ, and how many: what is not there the second time does
    where the first is not zero."""
    counts = ((name, lacking(one, second.get(name))) for name, one in first.items())
    return [(name.removeprefix(_GRADIENT), count) for name, count in counts if count]


def _forget_gradients(leaves: Iterable[Tensor]) -> None:
    for leaf in leaves:
        leaf.grad = None


def gradients_of(inputs: Tensors) -> Tensors:
    """What backward has left of them."""
    return {name: t.grad for name, t in inputs.items() if t.grad is not None}


def roots_and_seeds(outputs: Tensors, seeds: Tensors) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs that backward starts from, and the upstream gradient of each."""
    names = [name for name in seeds if name in outputs and outputs[name].requires_grad]
    return [outputs[name] for name in names], [seeds[name] for name in names]
