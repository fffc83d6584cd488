"""`Options`: what a run asks of the search for a counterexample."""

from __future__ import annotations

from dataclasses import dataclass, field

from tpcheck.search.corpus import Corpus

#: Cases that a failure may cost to be made smaller. All mutants of the suite are as small after 30
#: as after 100; a case of many dims may take more. A larger number only makes runs longer that
#: have failed already, where shrinking does not end by itself.
SHRINK_CASES = 100


@dataclass(frozen=True)
class Options:
    """What a run asks for.

    Args:
        examples: cases per check.
        seed: of the search; the same seed draws the same cases.
        degrees, dtypes: what cases may have.
        time_budget: seconds for all checks together, or None.
        corpus: where counterexamples are kept, or None for nowhere.
        shrink_cases: how many more cases a failure may cost, to make its case smaller.
    """

    examples: int = 20
    seed: int = 0
    degrees: tuple[int, ...] = (2, 4)
    dtypes: tuple[str, ...] = ("float64", "float32", "bfloat16")
    time_budget: float | None = None
    corpus: Corpus | None = field(default_factory=Corpus)
    shrink_cases: int = SHRINK_CASES
