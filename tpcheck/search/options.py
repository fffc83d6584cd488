"""`Options`: what a run asks of the search for a counterexample."""

from __future__ import annotations

from dataclasses import dataclass, field

from tpcheck.given import demand, is_amount, is_whole
from tpcheck.search.corpus import Corpus

#: Cases that a failure may cost to be made smaller; what takes longer counts for several
#: (`hunt.py`). Shrinking mostly ends by itself before that. A larger number makes runs longer that
#: have failed already.
SHRINK_CASES = 60

#: Cases in which a failure is looked for at each lower degree. With fewer, a counterexample stays
#: at the degree where it was met, which is right and harder to read; more only makes runs longer
#: that have failed already.
LOWER_CASES = 50


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
        lower_cases: in how many a failure is looked for at each lower degree.
        few_ranks: whether a check begins on as many ranks as its first case needs, since that is
            likely to end it; a case that needs more has all of the engine's started anew.
        fresh: whether a failure that was met on fresh ranks is told by a smaller case only where
            that fails on fresh ranks, too.
        replay: whether saved counterexamples run first.
        find_only: whether a failure ends the search as it is met: not confirmed, nor explained, nor
            kept.
        end: until when a check may draw its first case, however small its share of the time is, on
            the clock of `time.monotonic`; None for no longer than its share.
        kinds: whether it is told what kinds of case ran, and which could have.
        branches: whether it is noted which branches candidates take (`CaseResult.ways`).
        sparing: where most cases of a kernel are to be judged by their first calls alone, how many
            ran before; None where none is.
    """

    examples: int = 20
    seed: int = 0
    degrees: tuple[int, ...] = (2, 4)
    dtypes: tuple[str, ...] = ("float64", "float32", "bfloat16")
    time_budget: float | None = None
    corpus: Corpus | None = field(default_factory=Corpus)
    shrink_cases: int = SHRINK_CASES
    lower_cases: int = LOWER_CASES
    few_ranks: bool = False
    fresh: bool = True
    replay: bool = True
    find_only: bool = False
    end: float | None = None
    kinds: bool = False
    branches: bool = False
    sparing: int | None = None

    def __post_init__(self) -> None:
        demand(self, "examples", is_whole(self.examples, 1), "a whole number of at least 1")
        demand(self, "seed", is_whole(self.seed), "a whole number of at least 0")
        budget = self.time_budget
        what = "a positive number of seconds, or None"
        demand(self, "time_budget", budget is None or is_amount(budget), what)
        for count in ("shrink_cases", "lower_cases"):
            value = getattr(self, count)
            demand(self, count, is_whole(value), "a whole number of at least 0")
        known = self.sparing is None or is_whole(self.sparing)
        demand(self, "sparing", known, "a whole number of at least 0, or None")
        for flag in ("few_ranks", "fresh", "replay", "find_only", "kinds", "branches"):
            demand(self, flag, isinstance(getattr(self, flag), bool), "True or False")
        demand(
            self,
            "end",
            self.end is None or is_amount(self.end),
            "a time of time.monotonic, or None",
        )
        kept = self.corpus is None or isinstance(self.corpus, Corpus)
        demand(self, "corpus", kept, "a Corpus, or None")
