"""What a case shows, as words: of its configuration, and of what was seen while it ran. A word that
no case of the check has shown before is a discovery.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping

from tpcheck.case import Case
from tpcheck.verdict import CaseResult

#: Sizes of a case, at most, whose classes are paired. Pairs grow as the square of their number: of
#: a case of 40 dims nearly every one would be new for hours.
FEW = 6

#: What begins the word of something that was seen in a run. Cases near one that shows a new word of
#: this kind are worth a look; configurations are covered by drawing them.
SEEN = "seen"
ERROR, MASK = f"{SEEN} error=", f"{SEEN} mask "

#: The score from which on an error is close to its bound.
CLOSE = -1.0

#: The score of a case whose values are all exact, in powers of two of the bound.
EXACT = -60.0


def is_seen(word: str) -> bool:
    """Whether it says what was seen in a run."""
    return word.startswith(SEEN)


def is_way(word: str) -> bool:
    """Whether it says which way a run took through the code. How large errors are does not, nor do
    masks and numbers of programs, which follow from sizes."""
    return is_seen(word) and not word.startswith((ERROR, MASK)) and "programs=" not in word


def features(result: CaseResult) -> frozenset[str]:
    """All words of a case."""
    return frozenset([*configuration(result.case), *behaviour(result)])


def configuration(case: Case) -> Iterator[str]:
    """Every two of: dtype, memory format, magnitude, mesh, flags, and each size's class."""
    words = sorted(_configuration(case))
    yield from words
    yield from (f"{one} {other}" for one, other in itertools.combinations(words, 2))


def _configuration(case: Case) -> Iterator[str]:
    yield f"dtype={case.dtype}"
    yield f"memory={case.memory}"
    yield f"magnitude={(case.magnitude > 0) - (case.magnitude < 0)}"
    yield f"family={case.family}"
    yield f"gradients={case.gradients}"
    if case.mode != "train":  # models' are
        yield f"mode={case.mode}"
    yield f"mesh={'x'.join(map(str, case.mesh.values()))}"
    if case.microbatches > 1 or case.step:
        yield f"passes={min(case.microbatches, 2)}{'+step' * case.step}"
    if case.integers:
        yield "integers"
    sizes, flags = _dims(case.dims)
    yield from (f"{name}={value}" for name, value in flags.items())
    yield from (f"{name}={size_class(size)}" for name, size in list(sizes.items())[:FEW])


def _dims(dims: Mapping[str, object]) -> tuple[dict[str, int], dict[str, object]]:
    sizes = {n: v for n, v in dims.items() if isinstance(v, int) and not isinstance(v, bool)}
    return sizes, {n: v for n, v in dims.items() if n not in sizes and not isinstance(v, float)}


def size_class(size: int) -> str:
    """`0`, `1`; `2^k` and one less or more, where blocks of kernels end; else what it is between,
    and whether it is odd."""
    if size < 2:
        return str(size)
    for near, sign in ((size, ""), (size + 1, "-1"), (size - 1, "+1")):
        if near > 2 and near & (near - 1) == 0:
            return f"2^{near.bit_length() - 1}{sign}"
    return f"2^{size.bit_length() - 1}..{'odd' if size % 2 else ''}"


def behaviour(result: CaseResult) -> Iterator[str]:
    """What was seen: how near to its bound the worst error is, in powers of two; the collectives,
    in their order; the masks of a kernel's accesses; the kinds of what is wrong."""
    yield f"{ERROR}{math.floor(score(result) / 2) * 2}"
    if score(result) > CLOSE:
        yield f"{SEEN} close"
    if any(result.trace):
        yield f"{SEEN} collectives={schedule(result)}"
    if result.looked_again:
        yield f"{SEEN} looked-again"
    yield from (f"{SEEN} {way}" for way in result.ways)
    yield from (f"{SEEN} {mismatch.kind}" for mismatch in result.causes)


def schedule(result: CaseResult) -> str:
    """A digest of which collectives each rank entered, over whom and when."""
    entered = [
        [(event.op, event.reduce_op, event.group, event.phase, event.dtype) for event in events]
        for events in result.trace
    ]
    return hashlib.sha256(repr(entered).encode()).hexdigest()[:8]


def score(result: CaseResult) -> float:
    """log2 of the worst error over its bound, among values that agree: what `hypothesis.target` is
    given. Finite."""
    if math.isnan(result.usage) or result.usage <= 0:
        return EXACT
    return min(max(math.log2(result.usage), EXACT), -EXACT) if result.usage < math.inf else -EXACT
