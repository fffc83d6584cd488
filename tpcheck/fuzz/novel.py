"""Cases that show what few did: of many that are drawn, those whose features met least often.

A fault that needs several things at once (a dtype, a size that a tile divides, a memory format) is
rare among random cases, since each of them is. Where all combinations of three features are met
equally often, it is not much rarer than any other.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from hypothesis import Phase
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy

from tpcheck.case import Case
from tpcheck.fuzz.features import size_class
from tpcheck.fuzz.steps import beside_steps
from tpcheck.search import drawing
from tpcheck.search.hunt import Hunt
from tpcheck.search.stream import ROUND, Stream, note
from tpcheck.tensors.strides import format_of

#: Sizes, at most, whose features are combined. Combinations grow as the third power of their
#: number, and are counted for every case that is drawn.
FEW = 4

#: What tiles and vectors are as wide as. Sizes that these divide, or miss by one, take other paths.
STEPS = (16, 8, 4, 2)

#: The weight of combinations of two, of which there are few, beside those of three.
PAIRS = 4.0


class Met:
    """How often features of a check's cases met.

    Args:
        names: of tensors whose memory formats are known from the case.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._pairs: Counter[Any] = Counter()
        self._triples: Counter[Any] = Counter()

    def worth(self, words: Sequence[Any]) -> float:
        """How rare the combinations of a case's features are."""
        pairs = [1 / (1 + self._pairs[two]) for two in itertools.combinations(words, 2)]
        triples = [1 / (1 + self._triples[three]) for three in itertools.combinations(words, 3)]
        mean = sum(triples) / max(len(triples), 1)
        return PAIRS * sum(pairs) / max(len(pairs), 1) + mean

    def add(self, words: Sequence[Any]) -> None:
        self._pairs.update(itertools.combinations(words, 2))
        self._triples.update(itertools.combinations(words, 3))

    def words(self, case: Case) -> list[Any]:
        """What a case is like, in a fixed order."""
        return [*_settings(case), *self._formats(case), *_of_sizes(case)]

    def _formats(self, case: Case) -> Iterator[Any]:
        if case.memory != "mixed":
            yield "memory", case.memory
            return
        yield from ((name, format_of(case, name)) for name in sorted(self.names)[:FEW])


def _settings(case: Case) -> Iterator[Any]:
    yield "dtype", case.dtype
    yield "family", case.family, case.integers
    yield "magnitude", (case.magnitude > 0) - (case.magnitude < 0)
    yield "passes", min(case.microbatches, 2), case.gradients
    yield "step", case.step, case.mode
    yield "mesh", tuple(case.mesh.values())
    flags = ((n, v) for n, v in case.dims.items() if isinstance(v, (bool, str)))
    yield from itertools.islice(flags, FEW)


def _of_sizes(case: Case) -> Iterator[Any]:
    sizes = [(n, v) for n, v in case.dims.items() if type(v) is int][:FEW]
    for name, size in sizes:
        yield name, size_class(size)
        yield name, "step", near_step(size)
    if len(sizes) == FEW:
        return
    for (one, size), (other, another) in itertools.combinations(sizes, 2):
        yield one, other, (size > another) - (size < another)


def near_step(size: int) -> tuple[int, int]:
    """The largest step that divides a size, or else one that is next to it: how wide, and where."""
    for step in STEPS:
        for off in (0, 1, -1):
            if (size + off) % step == 0 and (step > 2 or not off):
                return step, off
    return 1, 0


class Novel(Stream):
    """Takes the cases that are rarest, of more that are drawn.

    Args:
        met: what cases of the check have shown, this stream's included.
    """

    ahead = 4
    first_alone = False

    def __init__(self, met: Met, *of_stream: Any) -> None:
        self._met = met
        self._words: dict[Case, list[Any]] = {}
        super().__init__(*of_stream)

    def _round(self, number: int) -> dict[Case, bytes]:
        """As drawn, and as many with sizes beside steps."""
        drawn = super()._round(number)
        key = f"{self.key} {number} beside"
        begin = drawing.Given(beside_steps([*drawn.values()], key))
        phases = [Phase.reuse]
        with contextlib.suppress(Unsatisfiable):
            examine = partial(note, more := dict[Case, bytes]())
            drawing.each(self.strategy, 2 * ROUND, key, examine, phases=phases, database=begin)
        return drawn | more

    def _shows(self, case: Case) -> set[object]:
        self._words[case] = self._met.words(case)
        return set()

    def _best(self, count: int) -> list[Case]:
        """One after the other; a case that was rare is less so once another like it was taken, and
        never more."""
        waiting = enumerate(self._waiting)
        heap = [(-self._met.worth(self._words[case]), n, case) for n, case in waiting]
        heapq.heapify(heap)
        taken: list[Case] = []
        while heap and len(taken) < count:
            _, n, case = heapq.heappop(heap)
            now = -self._met.worth(self._words[case])
            if heap and now > heap[0][0]:
                heapq.heappush(heap, (now, n, case))
                continue
            self._met.add(self._words.pop(case))
            taken.append(case)
        self._waiting.clear()  # what is left was drawn often enough to be drawn again
        self._words.clear()
        return taken


class Looking(Hunt):
    """A hunt among the rarest cases."""

    def __init__(self, met: Met, past: Callable[[Case], bool], *of_hunt: Any) -> None:
        super().__init__(*of_hunt)
        self._met, self.past = met, past

    def _new_stream(
        self, strategy: SearchStrategy[Case], key: str, listed: Sequence[Case]
    ) -> Stream:
        return Novel(self._met, strategy, key, listed, self.past)
