"""Which cases are none of a check's: what a saved case is held to before it runs, as a drawn one is
by the way in which it is drawn.

What a spec draws by a strategy of its own can't be told from a case: such a case stays the check's,
so that counterexamples outlive a change of the strategy.
"""

from __future__ import annotations

from collections.abc import Iterator

from tpcheck.case import Case
from tpcheck.check import Check, dp_can_be
from tpcheck.report import reasons
from tpcheck.search.collect import checks_in
from tpcheck.search.corpus import Corpus, Saved
from tpcheck.search.options import Options
from tpcheck.spec import outside


def excluded(check: Check, case: Case) -> str | None:
    """What of a case its check excludes, in words, or None where it may be drawn."""
    if not callable(check.spec.cases):
        return None if case in check.spec.cases else "the spec's list of cases has no such case"
    return next(_reasons(check, case), None)


def not_replayed(check: Check, case: Case, ranks: int) -> str | None:
    """Why a saved case is left out of a run with so many ranks, or None."""
    if (why := excluded(check, case)) is not None:
        return f"{why}: its check excludes that now"
    if case.world_size > ranks:
        return f"it needs {case.world_size} ranks, and there are {ranks}: give --ranks"
    return None


def to_replay(check: Check, corpus: Corpus | None, ranks: int, aside: list[str]) -> Iterator[Saved]:
    """The saved cases of a check that run again; `aside` is given a line for each that does not."""
    for saved in corpus.of(check.title, check.address()) if corpus else []:
        assert corpus is not None
        if (why := not_replayed(check, saved.case, ranks)) is None:
            yield saved
        else:
            aside.append(corpus.aside(saved.id, why))


def orphans(corpus: Corpus, file: str) -> list[str]:
    """A line for each saved case of a check that a file no longer has."""
    return [
        reasons.orphan(saved.id, saved.address, corpus.folder)
        for saved in corpus.orphans(file, checks_in(file))
        if saved.address is not None
    ]


def is_asked(check: Check, case: Case, options: Options) -> bool:
    """Whether a run with these options has the case of a known finding."""
    spec = check.spec
    degrees, dtypes = spec.degrees or options.degrees, spec.asked(options.dtypes)
    may = not callable(spec.cases) or excluded(check, case) is None
    return may and case.tp in degrees and case.dtype in dtypes


def _reasons(check: Check, case: Case) -> Iterator[str]:
    spec, kernel = check.spec, check.kernel
    allowed = [("tp", case.tp, spec.degrees), ("memory", case.memory, spec.memory)]
    if kernel is not None:
        allowed += [
            ("tp", case.tp, kernel.degrees),
            ("memory", case.memory, kernel.memory),
            ("family", case.family, kernel.families),
        ]
    else:
        allowed.append(("mode", case.mode, ("train", *spec.usual_modes)))
    for name, has, values in allowed:
        if values and has not in values:
            yield outside(name, has, values)
    if (why := spec.lacks(case)) is not None:
        yield why
    if case.integers and not (spec.linear and spec.norm is None):
        yield "integers=True, which is for specs with linear=True"
    if case.saved_at and check.save is None:
        yield f"saved_at={case.saved_at}, and the check does not save"
    if case.dp > 1 and not dp_can_be(check):
        yield f"dp={case.dp}, and the check resumes with gradients of each coordinate's own"
