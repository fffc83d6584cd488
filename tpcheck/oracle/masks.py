"""The random masks of a pass of the reference: noted in its first run, the same in all others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.protocol.problem import Masks, Problem
from tpcheck.tensors.dispatch import OverCompiled, eagerly, is_whole
from tpcheck.tensors.draw import generator
from tpcheck.tensors.masks import Chance, Drawing, Mask, in_backward
from tpcheck.tensors.names import Pass

#: What is said of a reference whose gradients are not those of its own output.
REDRAWN = (
    "the reference draws another random mask in backward than in forward, so that its gradients "
    "are not those of its output; let checkpoint() keep the generator's state "
    "(preserve_rng_state=True), and keep dropout out of torch.cond, which computes its forward "
    "again"
)


def masking(case: Case, problem: Problem, at: Pass) -> Masking:
    """Of a pass on the data of `problem`, which has its masks, or has none yet."""
    seed = generator(case, "mask", problem.d, at.suffix).initial_seed()
    return Masking(seed, problem.masks.get(at.suffix))


class Masking(OverCompiled):
    """While one pass of the reference runs, forward and backward. What it compiles runs eagerly: so
    the operators that draw are seen.

    Args:
        seed: what it draws from, whatever was drawn before.
        known: the masks of an earlier run of the same pass; None in the first one.
    """

    def __init__(self, seed: int, known: Sequence[Mask] | None) -> None:
        super().__init__()
        self.seed, self.known = seed, known
        self.drawn: list[Mask] = []
        self._outcomes: list[Tensor] = []  # what the generator gave for each, flat
        self._numbers: dict[Any, int] = {}  # the generator's state, a shape → which mask it gave
        self._drawing = Drawing(self._instead)
        self._outside: Any = None
        self._aside = False

    @property
    def unread(self) -> frozenset[str]:
        """The operators that drew what is not a mask."""
        return frozenset(self._drawing.unread)

    def of(self, at: Pass) -> Masks:
        """Those of this pass, by its suffix; nothing where there is none."""
        return {at.suffix: self.drawn} if self.drawn else {}

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """What is drawn inside is not the reference's."""
        self._aside = True
        try:
            yield
        finally:
            self._aside = False

    def __enter__(self) -> Masking:
        self._outside = contextlib.ExitStack()
        self._outside.enter_context(torch.random.fork_rng(devices=[]))
        self._outside.enter_context(eagerly())
        torch.default_generator.manual_seed(self.seed)
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        self._outside.__exit__(*exc)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if self._aside:
            return func(*args, **(kwargs or {}))
        if is_whole(func):
            return self.whole(func, args, kwargs)
        return self._drawing(func, args, kwargs or {})

    def _instead(self, outcome: Tensor, chance: Chance, state: bytes) -> Tensor | None:
        if in_backward():  # a forward that is computed again draws what it drew
            known = self._numbers.get((state, outcome.shape))
            return self._part_of(outcome) if known is None else self.drawn[known].true
        number = len(self.drawn)
        self._numbers[state, outcome.shape] = number
        mask = Mask(own := outcome.clone(), chance)
        if self.known is not None and number < len(self.known):
            earlier = self.known[number]
            mask = earlier if earlier.true.shape == outcome.shape else mask
        self.drawn.append(mask)
        self._outcomes.append(own.flatten())
        return mask.true

    def _part_of(self, outcome: Tensor) -> Tensor:
        """Of a mask that is drawn in another shape in backward, or a part after the other: what
        stands in the place of the same numbers.

        Raises:
            InvalidArgument: they are not those of a forward.
        """
        own, count = outcome.flatten(), outcome.numel()
        for mask, drawn in zip(self.drawn, self._outcomes, strict=True):
            last = len(drawn) - count
            for at in sorted({*range(0, last + 1, max(1, count)), max(0, last)}):
                if torch.equal(drawn[at : at + count], own):
                    return mask.true.flatten()[at : at + count].view(outcome.shape)
        raise InvalidArgument(REDRAWN)


#: Of a pass of which nothing is drawn, or noted.
NONE = Masking(0, None)
